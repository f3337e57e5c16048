//! One key, if keys are ordered: what its messages wait for.

use axum::extract::State;
use redrive::DeliveryOrder;
use redrive::internal::letters::select::LetterIds;
use redrive_api::KeyView;

use super::view;
use crate::answer::Json;
use crate::problem::{Code, Problem};
use crate::request::Path;
use crate::state::Shared;

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, key)): Path<(String, String)>,
) -> Result<Json<KeyView>, Problem> {
    let served = shared.service.find(&pipeline)?;
    if served.handle.ordering() == DeliveryOrder::None {
        let message = format!("pipeline `{pipeline}` keeps no order, so nothing waits for its key");
        return Err(Problem::new(Code::Conflict, message, "with `ordering = \"key\"` it would"));
    }
    let line = served.handle.key_line(key.as_bytes()).await?;
    let waiting = line.as_ref().map_or(0, |line| line.waiting);
    Ok(Json(KeyView {
        key,
        blocked_by: line.map(|line| view::message(LetterIds::of(&served.handle), &line.head)),
        waiting,
    }))
}
