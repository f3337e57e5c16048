//! Pipelines: their figures, and their gate.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use redrive::actions::{Action, ActionKind};
use redrive::{BreakerOrder, Resume};
use redrive_core::breaker::BreakerState;
use serde::{Deserialize, Serialize};

use super::view::{self, PipelineView};
use crate::access::auth::Actor;
use crate::answer::Json;
use crate::problem::{Code, Problem};
use crate::request::{Params, Path};
use crate::state::Shared;

/// How often the figures are looked at until they show a change, and how many times.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS_MAX: u32 = 200;

#[derive(Serialize)]
struct Pipelines<'a> {
    pipelines: Vec<PipelineView<'a>>,
}

pub(crate) async fn list(State(shared): State<Shared>) -> Response {
    let (served, replays) = (shared.service.pipelines.iter(), shared.service.replays.list());
    let pipelines = served.map(|served| view::pipeline(served, &replays)).collect();
    Json(Pipelines { pipelines }).into_response()
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let served = shared.service.find(&name)?;
    Ok(Json(view::pipeline(served, &shared.service.replays.list())).into_response())
}

pub(crate) async fn pause(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    gate(&shared, &actor, &name, None).await
}

pub(crate) async fn resume(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Params(resuming): Params<Resuming>,
) -> Result<Response, Problem> {
    let Resuming { dead_letter_anyway, now } = resuming;
    gate(&shared, &actor, &name, Some(Resume { dead_letter_anyway, now })).await
}

/// How to go on.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Resuming {
    /// Lets the dead letters come for which the guard has paused the pipeline.
    dead_letter_anyway: bool,
    /// Ends the wait for a Retry-After that applies to all messages.
    now: bool,
}

pub(crate) async fn probe_breaker(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    breaker(&shared, &actor, &name, BreakerOrder::Probe).await
}

pub(crate) async fn close_breaker(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    breaker(&shared, &actor, &name, BreakerOrder::Close).await
}

async fn breaker(
    shared: &Shared,
    actor: &Actor,
    name: &str,
    order: BreakerOrder,
) -> Result<Response, Problem> {
    let served = shared.service.find(name)?;
    let figures = served.handle.figures();
    let in_cooldown = figures.health.endpoints.as_ref().is_some_and(|all| all.endpoints + all.origins > 0);
    if figures.health.breaker.state == BreakerState::Closed && !in_cooldown {
        let message = format!("the breaker of `{name}` is closed");
        return Err(Problem::new(Code::Conflict, message, "there is nothing to probe or to close"));
    }
    let kind = match order {
        BreakerOrder::Probe => ActionKind::BreakerProbe,
        BreakerOrder::Close => ActionKind::BreakerClose,
    };
    let action = Action::new(served.handle.now(), &actor.0, kind, served.handle.name());
    shared.service.actions.record(action).await?;
    served.handle.order_breaker(order).await?;
    // The figures follow a moment later, and the answer shows how it is now.
    for _ in 0..LOOKS_MAX {
        let shown = served.handle.figures().health.breaker.state;
        if order == BreakerOrder::Probe || shown == BreakerState::Closed {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(Json(view::pipeline(served, &shared.service.replays.list())).into_response())
}

/// Closes the gate, or opens it as said. The record comes first: what was done is never missing from it.
async fn gate(
    shared: &Shared,
    actor: &Actor,
    name: &str,
    resume: Option<Resume>,
) -> Result<Response, Problem> {
    let served = shared.service.find(name)?;
    let (kind, how) = match resume {
        None => (ActionKind::Pause, Resume::default()),
        Some(how) => (ActionKind::Resume, how),
    };
    if served.handle.is_paused() != (kind == ActionKind::Pause) || how.now {
        let mut action = Action::new(served.handle.now(), &actor.0, kind, served.handle.name());
        let notes = [(how.dead_letter_anyway, "dead letters anyway"), (how.now, "Retry-After lifted")];
        let notes: Vec<&str> = notes.into_iter().filter(|(is, _)| *is).map(|(_, note)| note).collect();
        action.note = (!notes.is_empty()).then(|| notes.join(", "));
        shared.service.actions.record(action).await?;
    }
    match resume {
        None => served.handle.pause().await?,
        Some(how) => served.handle.resume_with(how).await?,
    }
    // The figures follow a moment later, and the answer shows how it is now.
    for _ in 0..LOOKS_MAX {
        let figures = served.handle.figures();
        if figures.paused == resume.is_none() && !(how.now && figures.health.wait.is_some()) {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(Json(view::pipeline(served, &shared.service.replays.list())).into_response())
}
