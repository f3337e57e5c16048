//! One message, by its id.

use axum::extract::State;
use redrive::letters::select::LetterIds;

use super::view::{self, MessageView};
use crate::answer::Json;
use crate::problem::Problem;
use crate::request::Path;
use crate::state::Shared;

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, id)): Path<(String, String)>,
) -> Result<Json<MessageView>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let message = served.handle.message(&id).await?.ok_or_else(|| {
        let hint = "ids are remembered for the time that `dedup` of the pipeline says; dead letters are kept until they \
                    are discarded";
        Problem::not_found(format!("pipeline `{pipeline}` knows no message `{id}`"), hint)
    })?;
    Ok(Json(view::message(LetterIds::of(&served.handle), &message)))
}
