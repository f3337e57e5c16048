//! Pipelines: their figures, and their take gate.

use std::time::Duration;

use axum::extract::State;
use redrive::actions::ActionKind;
use redrive::{BreakerOrder, Resume};
use redrive_api::{PipelineView, Pipelines};
use redrive_core::breaker::BreakerState;
use serde::Deserialize;

use super::change::Change;
use super::view;
use crate::answer::Json;
use crate::problem::{Code, Problem};
use crate::request::{Params, Path};
use crate::service::Served;
use crate::state::Shared;

/// The polling interval until the figures show a change; [`LOOKS_MAX`] limits the number of polls.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS_MAX: u32 = 200;

pub(crate) async fn list(State(shared): State<Shared>) -> Json<Pipelines> {
    let replays = shared.service.replays.list();
    let pipelines = shared.service.pipelines.iter().map(|served| view::pipeline(served, &replays));
    Json(Pipelines { pipelines: pipelines.collect() })
}

/// The current state of the pipeline.
fn now(shared: &Shared, served: &Served) -> PipelineView {
    view::pipeline(served, &shared.service.replays.list())
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<PipelineView>, Problem> {
    Ok(Json(now(&shared, shared.service.find(&name)?)))
}

pub(crate) async fn pause(change: Change) -> Result<Json<PipelineView>, Problem> {
    gate(change, None).await
}

pub(crate) async fn resume(
    change: Change,
    Params(resuming): Params<Resuming>,
) -> Result<Json<PipelineView>, Problem> {
    let Resuming { dead_letter_anyway, now } = resuming;
    gate(change, Some(Resume { dead_letter_anyway, now })).await
}

/// The parameters of a resume.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Resuming {
    /// Resumes even if the messages that triggered the guard will be dead-lettered.
    dead_letter_anyway: bool,
    /// Ends the wait for a Retry-After that applies to all messages.
    now: bool,
}

pub(crate) async fn probe_breaker(change: Change) -> Result<Json<PipelineView>, Problem> {
    breaker(change, BreakerOrder::Probe).await
}

pub(crate) async fn close_breaker(change: Change) -> Result<Json<PipelineView>, Problem> {
    breaker(change, BreakerOrder::Close).await
}

async fn breaker(change: Change, order: BreakerOrder) -> Result<Json<PipelineView>, Problem> {
    let served = &change.served;
    let figures = served.handle.figures();
    let in_cooldown = figures.health.endpoints.as_ref().is_some_and(|all| all.endpoints + all.origins > 0);
    if figures.health.breaker.state == BreakerState::Closed && !in_cooldown {
        let message = format!("the breaker of `{}` is closed", served.handle.name());
        return Err(Problem::new(Code::Conflict, message, "there is nothing to probe or to reset"));
    }
    let kind = match order {
        BreakerOrder::Probe => ActionKind::BreakerProbe,
        BreakerOrder::Close => ActionKind::BreakerClose,
    };
    change.record(change.action(kind)).await?;
    served.handle.order_breaker(order).await?;
    // The figures follow a moment later, and the answer should show the new state.
    for _ in 0..LOOKS_MAX {
        let shown = served.handle.figures().health.breaker.state;
        if order == BreakerOrder::Probe || shown == BreakerState::Closed {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(Json(now(&change.shared, served)))
}

/// Shuts the take gate, or opens it with `resume`. The action is recorded first, so that none is missing.
async fn gate(change: Change, resume: Option<Resume>) -> Result<Json<PipelineView>, Problem> {
    let served = &change.served;
    let (kind, how) = match resume {
        None => (ActionKind::Pause, Resume::default()),
        Some(how) => (ActionKind::Resume, how),
    };
    if served.handle.is_paused() != (kind == ActionKind::Pause) || how.now {
        let mut action = change.action(kind);
        let notes = [(how.dead_letter_anyway, "dead letters anyway"), (how.now, "Retry-After lifted")];
        let notes: Vec<&str> = notes.into_iter().filter(|(is, _)| *is).map(|(_, note)| note).collect();
        action.note = (!notes.is_empty()).then(|| notes.join(", "));
        change.record(action).await?;
    }
    match resume {
        None => served.handle.pause().await?,
        Some(how) => served.handle.resume_with(how).await?,
    }
    // The figures follow a moment later, and the answer should show the new state.
    for _ in 0..LOOKS_MAX {
        let figures = served.handle.figures();
        if figures.paused == resume.is_none() && !(how.now && figures.health.wait.is_some()) {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(Json(now(&change.shared, served)))
}
