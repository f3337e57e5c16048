//! Auto-replay: a controller that replays letters of one pipeline whose cause of death has passed.
//!
//! It takes a letter at most once, only letters whose class may heal, and only while the sink has been healthy for a
//! while. Each of its jobs begins with a canary and stops on failures like any other job, even after all of its
//! letters were put back. After [`STOPS_MAX`] stopped jobs in a row it gives up until a person resumes or aborts the
//! last of them. Its history is in the jobs and in the action log, so a restart changes nothing. Of several processes
//! that share the letters, one acts at a time.

use std::time::Duration;

use redrive_core::breaker::BreakerState;
use redrive_core::{Time, duration};

use super::error::ReplayError;
pub use super::job::AUTO_ACTOR;
use super::job::{ReplaySpec, ReplayState, ReplayView};
use super::members::MembersHealth;
use super::plan::{Ambiguous, PlanOptions};
use super::records;
use super::replays::Replays;
use super::stop::{CANARY_DEFAULT, STOP_AT_DEFAULT};
use crate::actions::{Action, ActionError, ActionKind, Actions};
use crate::engine::LetterState;
use crate::figures::Figures;
use crate::handle::{HandleError, PipelineHandle};
use crate::lease::Lease;
use crate::letters::{Filter, SelectError, Selection};

/// Jobs in a row that were stopped by failures before it gives up.
pub const STOPS_MAX: usize = 2;
/// After a stopped job, the waiting time is multiplied by this.
const BACKOFF: u32 = 6;
/// Longest interval between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Actions that are searched for an earlier record of a stop.
const LOG_MAX: usize = 10_000;

/// When, and at which rate, letters are replayed automatically.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoReplay {
    /// Letters per second.
    pub rate: f64,
    /// How long the sink must be healthy before a job begins, how long a letter must be dead, and the minimum time
    /// between two jobs.
    pub healthy_for: Duration,
    /// Older letters are left to people.
    pub age_max: Duration,
    /// No more letters of one tenant than this in a job; the others have to wait for the next one.
    pub tenant_max: Option<u64>,
}

impl Default for AutoReplay {
    fn default() -> Self {
        Self {
            rate: 5.0,
            healthy_for: Duration::from_mins(10),
            age_max: Duration::from_hours(24),
            tenant_max: None,
        }
    }
}

/// One of its own jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnJob {
    /// Its name.
    pub id: String,
    /// Its state.
    pub state: ReplayState,
    /// When it was started.
    pub created: Time,
}

/// The state of the pipeline, as the controller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// When this was seen.
    pub now: Time,
    /// Whether nothing is known to be wrong with the sink, in any process that shares the letters, and the pipeline runs.
    pub is_healthy: bool,
    /// Whether this process is the one that acts, of all that share the letters.
    pub acts: bool,
    /// Open letters of the pipeline.
    pub letters_open: u64,
    /// Whether a replay of the pipeline runs, whoever started it.
    pub is_replaying: bool,
    /// Its own jobs, the latest first.
    pub own_jobs: Vec<OwnJob>,
}

/// The controller's state between two looks.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: AutoReplay,
    healthy_since: Option<Time>,
    last_start: Option<Time>,
}

impl Controller {
    /// A controller that has seen nothing yet.
    pub fn new(settings: AutoReplay) -> Self {
        Self { settings, healthy_since: None, last_start: None }
    }

    /// Whether to start a job now. Pure, except for the state it remembers. Call it repeatedly.
    pub fn starts(&mut self, sight: &Sight) -> bool {
        let now = sight.now;
        if !sight.is_healthy {
            self.healthy_since = None;
            return false;
        }
        let healthy_for = self.settings.healthy_for;
        let since = *self.healthy_since.get_or_insert(now);
        let is_over = |since: Time, span: Duration| now >= since.plus(span);
        let has_rested = match stops_in_a_row(&sight.own_jobs) {
            0 => true,
            stops if stops >= STOPS_MAX => false,
            _ => is_over(sight.own_jobs[0].created, healthy_for * BACKOFF),
        };
        let starts = sight.acts
            && has_rested
            && is_over(since, healthy_for)
            && self.last_start.is_none_or(|start| is_over(start, healthy_for))
            && !sight.is_replaying
            && sight.letters_open > 0;
        if starts {
            self.last_start = Some(now);
        }
        starts
    }
}

/// How many of the latest jobs were stopped by failures and are still in that state.
pub fn stops_in_a_row(own_jobs: &[OwnJob]) -> usize {
    own_jobs.iter().take_while(|job| job.state == ReplayState::Stopped).count()
}

/// Whether no problem of the sink is known.
fn is_healthy(figures: &Figures) -> bool {
    let health = &figures.health;
    health.breaker.state == BreakerState::Closed
        && health.outage.is_none()
        && health.wait.is_none()
        && health.flood.is_none()
        && !figures.paused
}

/// Selects letters that may heal, were never replayed, and died before the sink became healthy: a later one shows
/// that it still fails. Letters that were never attempted have no class.
fn filter(settings: &AutoReplay) -> String {
    format!(
        "reason:max_retries,hold_expired,budget_exhausted -class:permanent,gone,crash,credential replays:<1 age:>={} age:<={}",
        duration::print(settings.healthy_for),
        duration::print(settings.age_max)
    )
}

/// Why a job could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AutoReplayError {
    /// The letters could not be selected.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The job could not be started.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The start could not be recorded.
    #[error(transparent)]
    Action(#[from] ActionError),
}

impl AutoReplayError {
    fn has_stopped(&self) -> bool {
        matches!(self, Self::Select(SelectError::Handle(HandleError::Stopped(_))))
    }
}

/// Watches the pipeline and replays letters that may succeed now, until the pipeline stops. `tell` gets the errors.
pub async fn run(
    settings: AutoReplay,
    handle: PipelineHandle,
    replays: Replays,
    actions: Actions,
    tell: impl Fn(&AutoReplayError),
) {
    let own_jobs = |replays: &Replays| -> Vec<OwnJob> {
        let own = |job: &ReplayView| job.pipeline == handle.name() && job.actor == AUTO_ACTOR;
        let jobs = replays.list().into_iter().filter(own);
        jobs.map(|job| OwnJob { id: job.id, state: job.state, created: job.created }).collect()
    };
    let stopped = |jobs: &[OwnJob]| {
        jobs.first().filter(|job| job.state == ReplayState::Stopped).map(|job| job.id.clone())
    };
    // The last stop recorded by this process; those recorded by others are found in the log.
    let mut recorded_stop = None;
    let mut controller = Controller::new(settings.clone());
    let shared = handle.shared_records();
    let mut lease = Lease::new(records::LEASE, replays.runner());
    let mut others = MembersHealth::new(&replays.runner());
    let pause = LOOK_EVERY.min(settings.healthy_for / 4).max(Duration::from_millis(10));
    loop {
        tokio::time::sleep(pause).await;
        let acts = match &shared {
            Some(shared) => lease.look(shared).await,
            None => true,
        };
        let figures = handle.figures();
        let is_well = is_healthy(&figures);
        let are_others_well = match &shared {
            Some(shared) => others.look(shared, is_well).await,
            None => true,
        };
        let running = |job: &ReplayView| job.pipeline == handle.name() && job.state == ReplayState::Running;
        let sight = Sight {
            now: handle.now(),
            is_healthy: is_well && are_others_well,
            acts,
            letters_open: figures.pending.letters_open,
            is_replaying: replays.list().iter().any(running),
            own_jobs: own_jobs(&replays),
        };
        let unrecorded = stopped(&sight.own_jobs).filter(|id| acts && recorded_stop.as_ref() != Some(id));
        let ended = match unrecorded {
            Some(id) => {
                let recorded = record_stop(&handle, &replays, &actions, &id, &sight).await;
                recorded_stop = Some(id);
                recorded
            }
            None if controller.starts(&sight) => start(&settings, &handle, &replays, &actions).await,
            None => Ok(()),
        };
        if let Err(error) = ended {
            if error.has_stopped() {
                return;
            }
            tell(&error);
        }
    }
}

async fn start(
    settings: &AutoReplay,
    handle: &PipelineHandle,
    replays: &Replays,
    actions: &Actions,
) -> Result<(), AutoReplayError> {
    let words = filter(settings);
    // The filter is valid. If it ever is not, select nothing.
    let Ok(filter) = Filter::parse(&words) else { return Ok(()) };
    let selection =
        Selection { filter: Some(filter), state: Some(LetterState::Open), ..Selection::default() };
    // Retries would also have sent the ambiguous ones again, with the same id.
    let options = PlanOptions {
        ambiguous: Ambiguous::Ok,
        skip_superseded: true,
        skip_unjudged: true,
        skip_beyond_ledger: true,
        canary: CANARY_DEFAULT,
        tenant_max: settings.tenant_max,
        ..PlanOptions::default()
    };
    let plan = replays.plan(handle, &selection, options).await?;
    if plan.ids.is_empty() {
        return Ok(());
    }
    let spec = ReplaySpec {
        rate: Some(settings.rate),
        canary: CANARY_DEFAULT,
        stop_at: Some(STOP_AT_DEFAULT),
        selection: words,
        ..ReplaySpec::default()
    };
    let why = format!("the sink has been healthy for {}", duration::print(settings.healthy_for));
    let actions = actions.clone();
    let record = move |action: Action| {
        let actions = actions.clone();
        let action = if action.action == ActionKind::Replay { action.note(&why) } else { action };
        async move { actions.record(action).await }
    };
    replays.start_recorded(handle, spec, plan, AUTO_ACTOR, record).await.map(drop)?;
    Ok(())
}

async fn record_stop(
    handle: &PipelineHandle,
    replays: &Replays,
    actions: &Actions,
    id: &str,
    sight: &Sight,
) -> Result<(), AutoReplayError> {
    let logged = actions.list(None, LOG_MAX).await?;
    if logged
        .iter()
        .any(|action| action.action == ActionKind::AutoReplayStop && action.id.as_deref() == Some(id))
    {
        return Ok(());
    }
    let job = replays.try_get(id)?;
    let why = job.note.unwrap_or_default();
    let next = if stops_in_a_row(&sight.own_jobs) >= STOPS_MAX {
        format!("off until {id} is resumed or aborted")
    } else {
        "waits before it tries again".to_owned()
    };
    let action = Action::new(sight.now, AUTO_ACTOR, ActionKind::AutoReplayStop, handle.name());
    Ok(actions.record(action.of(id, job.total).note(format!("{why}; {next}"))).await?)
}

#[cfg(test)]
mod tests {
    use redrive_core::guard::Flood;
    use redrive_core::pulse::Outage;
    use redrive_core::{FailureKind, Policy};

    use super::*;
    use crate::dispatch::AskedWait;

    const MINUTE: u64 = 60_000;

    fn at(minute: u64) -> Time {
        Time::from_millis(minute * MINUTE)
    }

    fn controller() -> Controller {
        Controller::new(AutoReplay::default())
    }

    fn well(minute: u64) -> Sight {
        Sight {
            now: at(minute),
            is_healthy: true,
            acts: true,
            letters_open: 40,
            is_replaying: false,
            own_jobs: Vec::new(),
        }
    }

    fn job(state: ReplayState, minute: u64) -> OwnJob {
        OwnJob { id: format!("r-{minute}"), state, created: at(minute) }
    }

    /// The minutes at which it starts a job, when asked once a minute.
    fn starts(
        controller: &mut Controller,
        minutes: std::ops::Range<u64>,
        sight: impl Fn(u64) -> Sight,
    ) -> Vec<u64> {
        minutes.filter(|minute| controller.starts(&sight(*minute))).collect()
    }

    #[test]
    fn it_waits_until_the_sink_was_healthy_for_a_while_and_between_two_jobs() {
        assert_eq!(starts(&mut controller(), 0..31, well), [10, 20, 30]);
    }

    #[test]
    fn an_outage_in_between_begins_the_wait_anew() {
        let sick_at_nine = |minute| Sight { is_healthy: minute != 9, ..well(minute) };
        assert_eq!(starts(&mut controller(), 0..25, sick_at_nine), [20]);
    }

    #[test]
    fn a_process_that_does_not_act_starts_nothing_and_is_ready_when_it_does() {
        let later = |minute| Sight { acts: minute >= 15, ..well(minute) };
        assert_eq!(starts(&mut controller(), 0..20, later), [15]);
    }

    #[test]
    fn nothing_to_replay_or_a_replay_under_way_starts_nothing() {
        let nothing = |minute| Sight { letters_open: 0, ..well(minute) };
        assert!(starts(&mut controller(), 0..60, nothing).is_empty());
        let busy = |minute| Sight { is_replaying: minute < 15, ..well(minute) };
        assert_eq!(starts(&mut controller(), 0..20, busy), [15]);
    }

    #[test]
    fn one_job_that_was_stopped_makes_it_wait_and_two_make_it_give_up() {
        let once = |minute| Sight { own_jobs: vec![job(ReplayState::Stopped, 0)], ..well(minute) };
        assert_eq!(starts(&mut controller(), 0..65, once), [60]);
        let twice = |minute| Sight {
            own_jobs: vec![job(ReplayState::Stopped, 1), job(ReplayState::Stopped, 0)],
            ..well(minute)
        };
        assert!(starts(&mut controller(), 0..10_000, twice).is_empty());
        // A person has aborted or resumed the last one.
        for state in [ReplayState::Aborted, ReplayState::Done] {
            let decided = |minute| Sight {
                own_jobs: vec![job(state, 1), job(ReplayState::Stopped, 0)],
                ..well(minute)
            };
            assert_eq!(starts(&mut controller(), 0..12, decided), [10]);
        }
    }

    #[test]
    fn a_sink_is_healthy_until_one_thing_is_known_to_be_wrong() {
        let well = Figures::new(&Policy::default());
        assert!(is_healthy(&well));
        let with = |name: &str, wrong: fn(&mut Figures)| {
            let mut figures = well.clone();
            wrong(&mut figures);
            assert!(!is_healthy(&figures), "{name}");
        };
        with("breaker open", |figures| figures.health.breaker.state = BreakerState::Open);
        with("breaker half open", |figures| figures.health.breaker.state = BreakerState::HalfOpen);
        with("outage", |figures| figures.health.outage = Some(Outage { last_good: None, failed: 20 }));
        with("wait", |figures| {
            figures.health.wait = Some(AskedWait {
                since: at(0),
                until: at(1),
                asked: Duration::from_mins(1),
                message_id: "o-1".to_owned(),
                kind: FailureKind::Status(503),
            });
        });
        with("flood", |figures| {
            figures.health.flood = Some(Flood { dead: 40, of: 50, within: Duration::from_mins(1) });
        });
        with("paused", |figures| figures.paused = true);
    }

    #[test]
    fn its_filter_is_understood() {
        assert!(Filter::parse(&filter(&AutoReplay::default())).is_ok());
    }
}
