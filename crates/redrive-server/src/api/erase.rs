//! Letters whose content goes for good, and the clean-up of what is done.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use redrive::LetterState;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::letters::reason;
use super::selection::Given;
use crate::access::auth::Actor;
use crate::answer::Json;
use crate::body;
use crate::problem::Problem;
use crate::request::{Path, read_json};
use crate::state::Shared;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EraseWish {
    filter: Option<String>,
    ids: Option<Vec<String>>,
    since: Option<String>,
    #[serde(default)]
    all: bool,
    reason: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct ErasedView {
    erased: u64,
    already: u64,
    in_replay: u64,
    parts_left: u64,
    remains: Vec<String>,
}

/// Letters in whatever state, unless the filter says one: who has to erase somebody's data means all of it. Only `all` by
/// itself means open letters, as everywhere.
pub(crate) async fn erase(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(pipeline): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let served = shared.service.find(&pipeline)?;
    let held = body::hold(&shared, &headers, body).await?;
    let wish: EraseWish = read_json(&held.bytes)?;
    let given = Given { filter: wish.filter, ids: wish.ids, since: wish.since, all: wish.all };
    let (mut ids, mut in_replay) = (Vec::new(), 0_u64);
    let now = served.handle.now();
    let selection = if given.all { given.open(now)? } else { given.any(now)? };
    selection
        .each(&served.handle, |letter| match letter.state {
            LetterState::Erased => {}
            LetterState::Replaying => {
                in_replay += 1;
                ids.push(letter.id);
            }
            LetterState::Open | LetterState::Succeeded | LetterState::Discarded => ids.push(letter.id),
        })
        .await?;
    if wish.dry_run {
        let would_erase = ids.len() as u64 - in_replay;
        return Ok(Json(json!({ "would_erase": would_erase, "in_replay": in_replay })).into_response());
    }
    let reason = reason(wish.reason)?;
    let done = shared.service.actions.erase(&served.handle, &ids, &actor.0, &reason).await?;
    let view = ErasedView {
        erased: done.erased,
        already: done.already,
        in_replay: done.in_replay,
        parts_left: done.wiped.parts_left,
        remains: done.wiped.remains,
    };
    Ok(Json(view).into_response())
}

pub(crate) async fn compact(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
) -> Result<Response, Problem> {
    let served = shared.service.find(&pipeline)?;
    let done = redrive::actions::wipe(&served.handle).await?;
    let view = json!({ "deleted": done.deleted, "parts_left": done.parts_left, "remains": done.remains });
    Ok(Json(view).into_response())
}
