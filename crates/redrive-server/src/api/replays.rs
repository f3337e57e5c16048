//! Replay jobs: started from a frozen selection, watched, paused and ended.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use redrive::actions::{Action, ActionKind};
use redrive::internal::engine::ReplayTarget;
use redrive::internal::letters::select::SELECTION_MAX;
use redrive::internal::replay::stop::{CANARY_DEFAULT, STOP_AT_DEFAULT};
use redrive::replay::{Ambiguous, PlanOptions, ReplayError, ReplaySpec, ReplayState, ReplayView};
use redrive_api::{Canary, HeldLetters, Instant, JobState, ReplayForecast, ReplayJob, Replays, StartReplay};
use redrive_core::{Ratio, duration};

use super::change::JsonBody;
use super::replay_plan::{breaker, by_reason, forecast, last_of};
use super::selection;
use crate::access::auth::Actor;
use crate::answer::Json;
use crate::problem::{Code, Problem};
use crate::request::Path;
use crate::state::{Shared, now};

/// How many non-open letters a refusal names.
const NOT_OPEN_NAMED_MAX: usize = 5;

pub(crate) async fn start(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    JsonBody { value: mut wish, .. }: JsonBody<StartReplay>,
) -> Result<Response, Problem> {
    let served = shared.service.find(&wish.pipeline)?;
    let letters = wish.take_selection();
    let named = letters.ids.clone();
    let words = selection::words(&letters, &served.redaction);
    let target = target(wish.to.as_deref())?;
    ReplayError::check_asked_rate(wish.rate)?;
    if let Some(canary) = wish.canary.filter(|canary| *canary > SELECTION_MAX as u64) {
        let message = format!("`canary` is {canary}, and a replay has at most {SELECTION_MAX} letters");
        return Err(Problem::bad_request(message, "give a few, such as 10; 0 for none"));
    }
    if target == ReplayTarget::Source && served.handle.takes_messages() {
        return Err(ReplayError::NoSource(wish.pipeline).into());
    }
    let ambiguous = ambiguous(wish.ambiguous.as_deref())?;
    let spec = ReplaySpec {
        rate: wish.rate,
        force: wish.force,
        target,
        canary: wish.canary.unwrap_or(CANARY_DEFAULT),
        stop_at: stop_at(wish.stop_at.as_deref())?,
        selection: words.clone(),
    };
    let selection = selection::open(letters, &served.redaction, served.handle.now())?;
    if wish.tenant_max == Some(0) {
        return Err(Problem::bad_request("`tenant_max` is 0: nothing would be replayed", "give 1 or more"));
    }
    let not_open = selection::not_open(named.as_deref(), &served.handle).await?;
    let options = PlanOptions {
        force: wish.force,
        ambiguous,
        skip_superseded: wish.skip_superseded,
        canary: spec.canary,
        tenant_max: wish.tenant_max,
        ..PlanOptions::default()
    };
    let plan = shared.service.replays.plan(&served.handle, &selection, options).await?;
    let other_groups = match target {
        ReplayTarget::Source if wish.dry_run => Some(served.readers.others().await?),
        _ => None,
    };
    let words_tell = named.is_none().then_some(&*words);
    let last = last_of(shared.service.replays.list(), &wish.pipeline, words_tell, &plan.groups);
    let planned = ReplayForecast { not_open, ..forecast(served, &spec, &plan, &options, last, other_groups) };
    if wish.dry_run {
        return Ok(Json(planned).into_response());
    }
    if plan.ambiguous > 0 && ambiguous == Ambiguous::Ask {
        return Err(undecided(plan.ambiguous));
    }
    if plan.beyond_ledger > 0 && !wish.beyond_ledger {
        return Err(beyond_ledger(plan.beyond_ledger, served.handle.ledger_horizon()));
    }
    if plan.ids.is_empty() {
        fail_if_left_out(&planned)?;
    }
    let actions = shared.service.actions.clone();
    let record = move |action| {
        let actions = actions.clone();
        async move { actions.record(action).await }
    };
    let job = shared.service.replays.start_recorded(&served.handle, spec, plan, &actor.0, record).await?;
    let started = ReplayJob { plan: Some(planned), ..view(job) };
    Ok((StatusCode::ACCEPTED, Json(started)).into_response())
}

fn ambiguous(given: Option<&str>) -> Result<Ambiguous, Problem> {
    let Some(name) = given else { return Ok(Ambiguous::Ask) };
    let unknown = || Problem::bad_request(format!("`ambiguous` is {name:?}"), "use `ok` or `skip`");
    Ambiguous::from_name(name).ok_or_else(unknown)
}

fn stop_at(given: Option<&str>) -> Result<Option<Ratio>, Problem> {
    let Some(text) = given else { return Ok(Some(STOP_AT_DEFAULT)) };
    if text == "off" {
        return Ok(None);
    }
    let share = text.parse().ok().filter(|share| *share <= Ratio::WHOLE);
    share.map(Some).ok_or_else(|| {
        Problem::bad_request(
            format!("`stop_at` is {text:?}, which is not a share"),
            "write it like `20%`, or `off`",
        )
    })
}

/// The request does not say what to do with letters that may have been delivered.
fn undecided(letters: u64) -> Problem {
    let message = format!(
        "{letters} of these letters have an attempt whose end is unknown: the receiver may have acted on it; nothing was \
         replayed"
    );
    let hint = "`ambiguous` = `ok` (--ambiguous ok) replays them with the same message id, which a receiver that \
                remembers ids ignores; `ambiguous` = `skip` (--ambiguous skip) leaves them open";
    Problem::new(Code::Conflict, message, hint)
}

/// Refuses a replay that would leave out all selected letters, unless only other replays are the reason.
fn fail_if_left_out(planned: &ReplayForecast) -> Result<(), Problem> {
    if planned.ambiguous_skipped > 0 {
        let message = format!(
            "nothing is left to replay: `ambiguous` = `skip` (--ambiguous skip) leaves out {} with an attempt whose end is \
             unknown; they stay open",
            letters(planned.ambiguous_skipped)
        );
        let hint = "`ambiguous` = `ok` (--ambiguous ok) replays them with the same message id, which a receiver that \
                    remembers ids ignores";
        return Err(Problem::not_found(message, hint));
    }
    if planned.superseded_skipped > 0 {
        let message = format!(
            "nothing is left to replay: `skip_superseded` (--skip-superseded) leaves out {} whose key has had a later \
             success; they stay open",
            letters(planned.superseded_skipped)
        );
        return Err(Problem::not_found(message, "replay them without it, or discard them"));
    }
    if planned.not_open.is_empty() || !planned.taken.is_empty() {
        return Ok(());
    }
    let named = planned.not_open.iter().take(NOT_OPEN_NAMED_MAX);
    let named: Vec<String> = named.map(|one| format!("{} is {}", one.letter, one.state)).collect();
    let more = match planned.not_open.len() - named.len() {
        0 => String::new(),
        more => format!(", and {more} more are not open"),
    };
    let message = format!("{}{more}: not open, so nothing was replayed", named.join(", "));
    Err(Problem::new(Code::Conflict, message, "`dry_run` (--dry-run) names all of them with their states"))
}

fn letters(number: u64) -> String {
    if number == 1 { "1 letter".to_owned() } else { format!("{number} letters") }
}

/// Letters that the receiver may have applied and forgotten must not be replayed.
fn beyond_ledger(letters: u64, horizon: Option<Duration>) -> Problem {
    let horizon = horizon.map(duration::print).unwrap_or_default();
    let message = format!(
        "{letters} of these letters were first attempted more than {horizon} ago, longer than the receiver remembers ids \
         (`ledger_horizon`): what it applied then it would apply again; nothing was replayed"
    );
    let hint = "`beyond_ledger` (--beyond-ledger) replays them too; `since` (--since) selects younger ones";
    Problem::new(Code::Conflict, message, hint)
}

fn target(to: Option<&str>) -> Result<ReplayTarget, Problem> {
    let Some(to) = to else { return Ok(ReplayTarget::Pipeline) };
    let unknown = || Problem::bad_request(format!("there is no target `{to}`"), "use `pipeline` or `source`");
    ReplayTarget::from_name(to).ok_or_else(unknown)
}

pub(crate) async fn list(State(shared): State<Shared>) -> Json<Replays> {
    Json(Replays { replays: shared.service.replays.list().into_iter().map(view).collect() })
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<ReplayJob>, Problem> {
    let job = find(&shared, &id)?;
    let stopped = job.state == ReplayState::Stopped;
    let pipeline = shared.service.find(&job.pipeline).ok().filter(|_| stopped);
    let breaker = pipeline.map(breaker);
    Ok(Json(ReplayJob { breaker, ..view(job) }))
}

pub(crate) async fn pause(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<ReplayJob>, Problem> {
    change(&shared, &actor, &id, ActionKind::ReplayPause).await
}

pub(crate) async fn resume(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<ReplayJob>, Problem> {
    change(&shared, &actor, &id, ActionKind::ReplayResume).await
}

pub(crate) async fn abort(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<ReplayJob>, Problem> {
    change(&shared, &actor, &id, ActionKind::ReplayAbort).await
}

async fn change(
    shared: &Shared,
    actor: &Actor,
    id: &str,
    kind: ActionKind,
) -> Result<Json<ReplayJob>, Problem> {
    let job = find(shared, id)?;
    if job.state.is_over() {
        return Err(ReplayError::Over { id: job.id, state: job.state }.into());
    }
    let replays = &shared.service.replays;
    match (kind, job.state) {
        (ActionKind::ReplayPause, ReplayState::Stopped) => {
            let message = format!("replay `{}` is stopped, not running", job.id);
            return Err(Problem::new(Code::Conflict, message, "resume it or abort it"));
        }
        // Nothing changes, so nothing is recorded. The state of a job of another process may be outdated.
        (ActionKind::ReplayPause, ReplayState::Paused) | (ActionKind::ReplayResume, ReplayState::Running)
            if replays.runs_here(id) =>
        {
            return Ok(Json(view(job)));
        }
        _ => {}
    }
    let action = Action::new(now(), &actor.0, kind, &job.pipeline);
    shared.service.actions.record(action.of(job.id.clone(), job.total)).await?;
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
            ReplayError::Taken(_) => Self::new(
                Code::Conflict,
                error,
                "wait until they are put back, or abort that replay (redrive dlq replays abort ID)",
            ),
            ReplayError::TooMany => Self::bad_request(
                error,
                "narrow it down by `filter` (--filter) or `since` (--since), and start several replays",
            ),
            ReplayError::Rate(_) => Self::bad_request(
                error,
                "leave `rate` (--rate) out to replay as fast as the pipeline takes them; to hold a replay back, pause it",
            ),
            ReplayError::NoSource(_) => Self::bad_request(error, "leave `to` (--to) out"),
            ReplayError::TooManyJobs => {
                Self::new(Code::Conflict, error, "`redrive dlq replays list`, or GET /v1/replays, lists them")
            }
            ReplayError::NotFound(_) => Self::not_found(
                error,
                "`redrive dlq replays list`, or GET /v1/replays, lists all that are kept",
            ),
            ReplayError::Elsewhere { .. } => Self::not_found(
                error,
                "`redrive status --members` lists the processes; `redrive dlq replays list` at each its jobs",
            ),
            ReplayError::Unanswered { .. } => {
                Self::new(Code::Unavailable, error, "GET /v1/replays/{id} shows when it is done")
            }
            ReplayError::Unrecorded(error) => error.into(),
            ReplayError::Over { .. } => Self::new(Code::Conflict, error, "start a new one for what is left"),
            ReplayError::NoRuntime | ReplayError::Storage(_) => {
                Self::new(Code::StorageFailed, error, "look at the folder replays in the data directory")
            }
            _ => Self::new(Code::StorageFailed, error, "see the processor log"),
        }
    }
}

const fn state(state: ReplayState) -> JobState {
    match state {
        ReplayState::Paused => JobState::Paused,
        ReplayState::Done => JobState::Done,
        ReplayState::Aborted => JobState::Aborted,
        ReplayState::Stopped => JobState::Stopped,
        ReplayState::Failed => JobState::Failed,
        // A state without a name in the API is never a final one.
        _ => JobState::Running,
    }
}

fn view(job: ReplayView) -> ReplayJob {
    ReplayJob {
        id: job.id,
        pipeline: job.pipeline,
        state: state(job.state),
        selection: job.selection,
        total: job.total,
        published: job.published,
        under_way: job.under_way,
        held: job.held.map(|held| HeldLetters {
            letters: held.letters,
            because: held.why.name().to_owned(),
            last_success: held.why.last_success().map(Instant),
        }),
        succeeded: job.succeeded,
        dead_again: job.dead_again,
        forgotten: job.forgotten,
        skipped: job.skipped,
        untouched: job.untouched,
        skips: by_reason(&job.skips),
        rate: job.rate,
        to: job.target.name().to_owned(),
        canary: job.canary.map(|canary| Canary {
            letters: canary.letters,
            succeeded: canary.succeeded,
            over: canary.is_over,
        }),
        stop_at: job.stop_at.map(|share| share.to_string()),
        sent_twice_max: Some(job.sent_twice_max),
        created: Instant(job.created),
        actor: job.actor,
        note: job.note,
        breaker: None,
        plan: None,
    }
}
