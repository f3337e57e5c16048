//! Replay jobs: started from a selection that is frozen first, watched, paused and ended.

use std::collections::BTreeMap;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use redrive::actions::{Action, ActionKind};
use redrive::engine::ReplayTarget;
use redrive::replay::{ReplayError, ReplaySpec, ReplayView, Skipped};
use redrive::timestamp;
use serde::{Deserialize, Serialize};

use super::selection::Given;
use crate::access::auth::Actor;
use crate::answer::Json;
use crate::body;
use crate::problem::{Code, Problem};
use crate::request::{Path, read_json};
use crate::state::{Shared, now};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    pipeline: String,
    filter: Option<String>,
    ids: Option<Vec<String>>,
    since: Option<String>,
    #[serde(default)]
    all: bool,
    rate: Option<f64>,
    #[serde(default)]
    force: bool,
    /// `source`, or nothing for where only this pipeline sees them.
    to: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

pub(crate) async fn start(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let held = body::hold(&shared, &headers, body).await?;
    let wish: Wish = read_json(&held.bytes)?;
    let served = shared.service.find(&wish.pipeline)?;
    let given = Given { filter: wish.filter, ids: wish.ids, since: wish.since, all: wish.all };
    let words = given.words();
    let target = target(wish.to.as_deref())?;
    ReplayError::check_rate(wish.rate)?;
    if target == ReplayTarget::Source && served.handle.takes_messages() {
        return Err(ReplayError::NoSource(wish.pipeline).into());
    }
    let selection = given.open(served.handle.now())?;
    if wish.dry_run {
        let forecast = selection.forecast(&served.handle, wish.force).await?;
        let would_replay = forecast.would_replay;
        let about_seconds = wish.rate.map(|rate| would_replay as f64 / rate);
        let skips = by_reason(&Skipped { too_often: forecast.too_often, ..Skipped::default() });
        let other_groups = match target {
            ReplayTarget::Pipeline => None,
            ReplayTarget::Source => Some(served.readers.others().await?),
        };
        let forecast = Forecast { would_replay, skips, rate: wish.rate, about_seconds, other_groups };
        return Ok(Json(forecast).into_response());
    }
    let ids = selection.freeze(&served.handle).await?;
    let spec = ReplaySpec { rate: wish.rate, force: wish.force, target, selection: words.clone() };
    let job = shared.service.replays.start(&served.handle, spec, ids, &actor.0).await?;
    // The job has its name only now; its own file says who started it should this line not be written any more.
    let action = Action::new(served.handle.now(), &actor.0, ActionKind::Replay, &job.pipeline);
    shared.service.actions.record(action.of(job.id.clone(), job.total).note(words)).await?;
    Ok((StatusCode::ACCEPTED, Json(view(job))).into_response())
}

fn target(to: Option<&str>) -> Result<ReplayTarget, Problem> {
    let Some(to) = to else { return Ok(ReplayTarget::Pipeline) };
    let unknown = || Problem::bad_request(format!("there is no target `{to}`"), "use `pipeline` or `source`");
    ReplayTarget::from_name(to).ok_or_else(unknown)
}

pub(crate) async fn list(State(shared): State<Shared>) -> Json<JobList> {
    Json(JobList { replays: shared.service.replays.list().into_iter().map(view).collect() })
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<JobView>, Problem> {
    Ok(Json(view(find(&shared, &id)?)))
}

pub(crate) async fn pause(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<JobView>, Problem> {
    change(&shared, &actor, &id, ActionKind::ReplayPause).await
}

pub(crate) async fn resume(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<JobView>, Problem> {
    change(&shared, &actor, &id, ActionKind::ReplayResume).await
}

pub(crate) async fn abort(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<JobView>, Problem> {
    change(&shared, &actor, &id, ActionKind::ReplayAbort).await
}

async fn change(
    shared: &Shared,
    actor: &Actor,
    id: &str,
    kind: ActionKind,
) -> Result<Json<JobView>, Problem> {
    let job = find(shared, id)?;
    if job.state.is_over() {
        return Err(ReplayError::Over { id: job.id, state: job.state }.into());
    }
    let action = Action::new(now(), &actor.0, kind, &job.pipeline);
    shared.service.actions.record(action.of(job.id.clone(), job.total)).await?;
    let replays = &shared.service.replays;
    let job = match kind {
        ActionKind::ReplayPause => replays.pause(id).await?,
        ActionKind::ReplayResume => replays.resume(id).await?,
        _ => replays.abort(id).await?,
    };
    Ok(Json(view(job)))
}

fn find(shared: &Shared, id: &str) -> Result<ReplayView, Problem> {
    Ok(shared.service.replays.try_get(id)?)
}

impl From<ReplayError> for Problem {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Nothing => Self::new(Code::NotFound, error, "no open letter fits; list them first"),
            ReplayError::TooMany => {
                Self::bad_request(error, "narrow it down by `filter` or `since`, and start several replays")
            }
            ReplayError::Rate(_) => Self::bad_request(
                error,
                "leave `rate` out to replay as fast as the pipeline takes them; a replay that shall wait can be paused",
            ),
            ReplayError::NoSource(_) => Self::bad_request(error, "leave `to` out"),
            ReplayError::TooManyJobs => {
                Self::new(Code::Conflict, error, "`redrive dlq replays list`, or GET /v1/replays, lists them")
            }
            ReplayError::NotFound(_) => Self::not_found(
                error,
                "`redrive dlq replays list`, or GET /v1/replays, lists all that are kept; where several processes share the work, each knows its own",
            ),
            ReplayError::Elsewhere { .. } => Self::not_found(
                error,
                "`redrive status --members` lists the processes; `redrive dlq replays list` at each its jobs",
            ),
            ReplayError::Over { .. } => Self::new(Code::Conflict, error, "start a new one for what is left"),
            ReplayError::NoRuntime | ReplayError::Storage(_) => {
                Self::new(Code::StorageFailed, error, "look at the folder replays in the data directory")
            }
        }
    }
}

/// A job as the API shows it.
#[derive(Debug, Serialize)]
pub(crate) struct JobView {
    id: String,
    pipeline: String,
    state: &'static str,
    selection: String,
    total: u64,
    /// Put back: `under_way`, `succeeded`, `dead_again` and `forgotten` add up to it.
    published: u64,
    under_way: u64,
    succeeded: u64,
    dead_again: u64,
    forgotten: u64,
    skipped: u64,
    /// Neither published nor skipped.
    untouched: u64,
    skips: BTreeMap<&'static str, u64>,
    rate: Option<f64>,
    to: &'static str,
    created: String,
    actor: String,
    /// Why it stopped, if it did.
    note: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct JobList {
    replays: Vec<JobView>,
}

/// What a job would do.
#[derive(Debug, Serialize)]
struct Forecast {
    would_replay: u64,
    skips: BTreeMap<&'static str, u64>,
    rate: Option<f64>,
    about_seconds: Option<f64>,
    /// Who else reads the topic the letters would go onto.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_groups: Option<Vec<String>>,
}

/// The reasons that there are.
fn by_reason(skips: &Skipped) -> BTreeMap<&'static str, u64> {
    skips.by_reason().into_iter().filter(|(_, count)| *count > 0).collect()
}

fn view(job: ReplayView) -> JobView {
    JobView {
        id: job.id,
        pipeline: job.pipeline,
        state: job.state.name(),
        selection: job.selection,
        total: job.total,
        published: job.published,
        under_way: job.under_way,
        succeeded: job.succeeded,
        dead_again: job.dead_again,
        forgotten: job.forgotten,
        skipped: job.skipped,
        untouched: job.untouched,
        skips: by_reason(&job.skips),
        rate: job.rate,
        to: job.target.name(),
        created: timestamp::print(job.created),
        actor: job.actor,
        note: job.note,
    }
}
