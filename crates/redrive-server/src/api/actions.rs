//! The action log.

use axum::extract::State;
use redrive::actions::{Action, ActionError, ActionKind, ActionStep};
use redrive::replay::ReplayView;
use redrive_api::{ActionView, Actions, Instant};
use serde::Deserialize;

use super::selection;
use crate::answer::Json;
use crate::problem::{Code, Problem};
use crate::request::Params;
use crate::state::{Shared, now};

/// The default number of actions in an answer.
const LIST_DEFAULT: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ActionListParams {
    pipeline: Option<String>,
    since: Option<String>,
    limit: Option<usize>,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Params(params): Params<ActionListParams>,
) -> Result<Json<Actions>, Problem> {
    let since = params.since.as_deref().map(|text| selection::since(text, now())).transpose()?;
    let limit = params.limit.unwrap_or(LIST_DEFAULT);
    let actions = match &params.pipeline {
        Some(pipeline) => shared.service.actions.list_of(pipeline, since, limit).await?,
        None => shared.service.actions.list(since, limit).await?,
    };
    let replays = &shared.service.replays;
    let shown = |action: Action| {
        let is_replay = action.action == ActionKind::Replay;
        let job = action.id.as_deref().filter(|_| is_replay).and_then(|id| replays.get(id));
        view(action, job.as_ref())
    };
    Ok(Json(Actions { actions: actions.into_iter().map(shown).collect() }))
}

/// An action as recorded, and the state of the replay that it started.
fn view(action: Action, job: Option<&ReplayView>) -> ActionView {
    let counts_letters = action.action.counts() == "letters";
    ActionView {
        at: Instant(action.at),
        actor: action.actor,
        action: action.action.name().to_owned(),
        id: action.id,
        pipeline: Some(action.pipeline),
        letters: counts_letters.then_some(action.letters),
        succeeded: job.map(|job| job.succeeded),
        dead_again: job.map(|job| job.dead_again),
        subscriptions: (!counts_letters).then_some(action.letters),
        note: action.note,
        fields: action.fields,
        unfinished: (action.step == ActionStep::Asked).then_some(true),
    }
}

impl From<ActionError> for Problem {
    fn from(error: ActionError) -> Self {
        match error {
            ActionError::NotFound(_) => Self::not_found(
                error,
                "`redrive audit PIPELINE --actions`, or GET /v1/actions, lists the discards with their ids",
            ),
            ActionError::Elsewhere { .. } => Self::not_found(
                error,
                "`redrive status --members` lists the processes; `redrive audit PIPELINE --actions` at each its discards",
            ),
            // For this pipeline it does not exist: the same answer as for an unknown id.
            ActionError::NoGroup { ref pipeline, .. } => {
                let hint = format!("list the groups with `redrive dlq groups {pipeline} --all`");
                Self::not_found(error, hint)
            }
            ActionError::OtherPipeline { .. } => Self::not_found(error, "undo it in its own pipeline"),
            ActionError::NoEdit { ref pipeline, .. } => {
                let hint = format!(
                    "`redrive audit {pipeline} --actions`, or GET /v1/actions, lists the edits with their ids"
                );
                Self::not_found(error, hint)
            }
            ActionError::Ambiguous { .. } => Self::new(
                Code::Conflict,
                error,
                "nothing was changed; give `\"message_id\": \"same\"` (--same-id) if that is right, or `\"new\"` \
                 (--new-id) if the receiver should apply the edited message regardless",
            ),
            ActionError::Storage(_) | ActionError::Damaged(_) => {
                Self::new(Code::StorageFailed, error, "look at the file actions.ndjson in the data directory")
            }
            ActionError::Handle(error) => error.into(),
            _ => Self::new(Code::StorageFailed, error, "see the processor log"),
        }
    }
}
