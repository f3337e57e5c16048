//! Liveness, readiness and metrics of the process.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use redrive::replay::{ReplayState, ReplayView};
use redrive_api::{Liveness, PipelineProblem};

use crate::answer::Json;
use crate::api::view::condition::pipeline_problem;
use crate::metrics::{self, DoorCounts, PipelineFigures, ReplayCounts, ReplayJobs, Snapshot};
use crate::readiness::Phase;
use crate::service::Served;
use crate::state::Shared;

/// Alive: the runtime answers. Nothing else is checked, so that a slow disk does not get the process killed.
pub(crate) async fn live() -> Response {
    Json(Liveness { status: "live".to_owned(), problems: Vec::new() }).into_response()
}

pub(crate) async fn ready(State(shared): State<Shared>) -> Response {
    let phase = shared.readiness.phase();
    let problems = if phase == Phase::Ready { problems(&shared) } else { Vec::new() };
    let is_well = phase == Phase::Ready && problems.is_empty();
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let name = if problems.is_empty() { phase.name() } else { "impaired" };
    (status, Json(Liveness { status: name.to_owned(), problems })).into_response()
}

/// The problems of all pipelines that keep messages from moving.
fn problems(shared: &Shared) -> Vec<PipelineProblem> {
    let of_pipeline = |served: &Served| {
        let name = served.handle.name();
        let problems = served.handle.figures().condition.problems;
        problems.iter().map(|problem| pipeline_problem(Some(name), problem)).collect::<Vec<_>>()
    };
    shared.service.pipelines.iter().flat_map(of_pipeline).collect()
}

pub(crate) async fn metrics(State(shared): State<Shared>) -> Response {
    shared.groups.refresh(&shared.service).await;
    let text = metrics::render(&snapshot(&shared));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

fn snapshot(shared: &Shared) -> Snapshot {
    let jobs = shared.service.replays.list();
    let figures = |served: &Served| PipelineFigures {
        name: served.handle.name().to_owned(),
        figures: served.handle.figures(),
        groups: shared.groups.counts(served.handle.name()),
        replay_jobs: replay_jobs(served.handle.name(), &jobs),
        subscriptions: served.subscription_counts(),
        expired: served.expired.load(std::sync::atomic::Ordering::Relaxed),
    };
    let mut replays = ReplayCounts::default();
    for job in &jobs {
        replays.published += job.published;
        replays.succeeded += job.succeeded;
        replays.dead_again += job.dead_again;
        replays.skipped += job.skipped;
    }
    let pipelines = shared.service.pipelines.iter().map(figures).collect();
    let (connections, evicted) = shared.connections.counts();
    let door = DoorCounts { connections, evicted, wrong_tokens: shared.wrong_tokens.total() };
    Snapshot { pipelines, replays, started: shared.started, door }
}

/// The unfinished jobs of a pipeline.
fn replay_jobs(pipeline: &str, jobs: &[ReplayView]) -> ReplayJobs {
    let of = |state: ReplayState| {
        jobs.iter().filter(|job| job.pipeline == pipeline && job.state == state).count() as u64
    };
    ReplayJobs {
        running: of(ReplayState::Running),
        paused: of(ReplayState::Paused),
        stopped: of(ReplayState::Stopped),
    }
}
