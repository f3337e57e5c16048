//! What a pipeline has done and what it holds, as plain numbers.
//!
//! The dispatch thread counts in plain fields of its own, without an atomic or a lock per message, and publishes a copy at
//! most every 50 ms. A reader gets that copy and never makes the thread wait.

mod histogram;
pub(crate) mod recent;
mod tallies;

use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Policy, Schedule, Time, duration};

use crate::dispatch::health::HealthFigures;
use crate::engine::{Counts, LetterState};

pub use crate::dispatch::{AskedWait, EndpointFigures, Incident, ResetFigures};
pub use crate::engine::{
    ClusterStanding, Condition, PartitionFlow, Partitions, Problem, ProblemKind, Upkeep,
};
pub use histogram::Histogram;
pub use recent::{RecentFailures, RecentFigures};
pub use tallies::{ByClass, ByReason};

/// The figures of one pipeline: counters and histograms since this process began, gauges as of the last publication.
///
/// ```
/// fn print(orders: &redrive::PipelineHandle) {
///     let figures = orders.figures();
///     println!("{} delivered, {} retried", figures.succeeded, figures.retried());
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Messages that were delivered.
    pub succeeded: u64,
    /// Messages that became dead letters; a replayed letter that dies again counts again.
    pub dead: ByReason,
    /// Ended calls. A call that was given up has no end and is in `repeats`.
    pub attempts: ByClass,
    /// Calls a message needed until it succeeded or died; a replay starts again at zero.
    pub attempts_per_message: Histogram,
    /// Messages that needed more than one call, by whether they succeeded in the end.
    pub retried_ended: RetriedEnded,
    /// Messages that were taken for the first time.
    pub consumed: u64,
    /// Retries and deferrals that were decided, by tier.
    pub retries: Vec<TierRetries>,
    /// Of these, those that burned no attempt.
    pub deferred: u64,
    /// How late a message started that had a due time. A keyed one counts from its second attempt on: before that it may
    /// have waited for its key, which is not lateness.
    pub retry_lateness: Histogram,
    /// How long a message waited behind others before its first attempt: the pipeline is one line here, and in blocking
    /// mode whoever waits in place holds it up.
    pub stall: Histogram,
    /// From a message's creation until it succeeded.
    pub end_to_end: Histogram,
    /// From giving verdicts to the engine until they are durable, once per verdict.
    pub settle_duration: Histogram,
    /// From the moment a retry is decided until it is durable.
    pub schedule_write: Histogram,
    /// How quick it was, how long messages were held and what failed in the last five minutes.
    pub recent: RecentFigures,
    /// How many messages and letters are in which state, at one moment: what is in flight holds a permit, and while
    /// nothing may start (paused, breaker open, the sink asked to wait) what would be ready or delayed is held.
    pub pending: Counts,
    /// Messages that came in a second, over the last minute.
    pub arrivals_per_second: f64,
    /// When the oldest message was made that is not terminal. Looked for once a second among what runs, what is first in
    /// the queue and what comes due next; one that waits far behind these is found when its turn comes.
    pub oldest_pending: Option<Time>,
    /// How long the first message has waited that may start and has not; zero if none waits. On Kafka each partition says it
    /// (`condition`). Looked for once a second.
    pub stalled_for: Duration,
    /// When the first of the open letters, by number, became one. Letters are searched in steps, so after a start with
    /// many resolved ones it takes a few seconds to show.
    pub oldest_letter: Option<Time>,
    /// Whether it was paused by an operator.
    pub paused: bool,
    /// Handlers that run now.
    pub running: usize,
    /// Calls that wait in place for their next attempt; only in blocking mode.
    pub waiting_in_place: usize,
    /// Calls abandoned before they returned: their effect may have happened, and they will be made again.
    pub repeats: u64,
    /// How the sink is doing: breaker, permits, budget, suspects.
    pub health: HealthFigures,
    /// Keys whose order was not preserved. Always zero on engines with one owner.
    pub key_order_voided: u64,
    /// How often the store repaired itself and how far it has checked itself.
    pub upkeep: Upkeep,
    /// How the engine stands beside its messages.
    pub condition: Condition,
}

/// What became of messages whose first call did not succeed and that were called again. A replay starts again at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RetriedEnded {
    /// Those that were delivered.
    pub succeeded: u64,
    /// Those that became dead letters.
    pub dead: u64,
}

/// Retries of one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierRetries {
    /// The tier's delay as text (`5s`); `backoff`, `fixed` or `custom` where the schedule has no tiers.
    pub tier: Arc<str>,
    /// How many retries had this delay.
    pub retries: u64,
}

impl Figures {
    pub(crate) fn new(policy: &Policy) -> Self {
        let counted = |tier: Arc<str>| TierRetries { tier, retries: 0 };
        Self {
            succeeded: 0,
            dead: ByReason::default(),
            attempts: ByClass::default(),
            attempts_per_message: Histogram::of_numbers(),
            retried_ended: RetriedEnded::default(),
            consumed: 0,
            retries: tier_labels(policy.schedule()).into_iter().map(counted).collect(),
            deferred: 0,
            retry_lateness: Histogram::of_spans(),
            stall: Histogram::of_spans(),
            end_to_end: Histogram::of_spans(),
            settle_duration: Histogram::of_writes(),
            schedule_write: Histogram::of_writes(),
            recent: RecentFigures::default(),
            pending: Counts::default(),
            arrivals_per_second: 0.0,
            oldest_pending: None,
            stalled_for: Duration::ZERO,
            oldest_letter: None,
            paused: false,
            running: 0,
            waiting_in_place: 0,
            repeats: 0,
            health: HealthFigures::default(),
            key_order_voided: 0,
            upkeep: Upkeep::default(),
            condition: Condition::default(),
        }
    }

    /// Whether nothing may start but probes: it is paused, its breaker is open, or its sink asked to wait.
    pub fn is_gated(&self) -> bool {
        self.paused || self.health.is_gated()
    }

    /// All retries and deferrals.
    pub fn retried(&self) -> u64 {
        self.retries.iter().map(|tier| tier.retries).sum()
    }

    /// Letters by state.
    pub fn letters(&self) -> [(LetterState, u64); 5] {
        let Counts {
            letters_open,
            letters_replaying,
            letters_succeeded,
            letters_discarded,
            letters_erased,
            ..
        } = self.pending;
        [
            (LetterState::Open, letters_open),
            (LetterState::Replaying, letters_replaying),
            (LetterState::Succeeded, letters_succeeded),
            (LetterState::Discarded, letters_discarded),
            (LetterState::Erased, letters_erased),
        ]
    }
}

impl Default for Figures {
    /// Of a pipeline with the default policy that has done nothing yet.
    fn default() -> Self {
        Self::new(&Policy::default())
    }
}

/// One label per tier, at least one. Bounded by the number of tiers a policy may have.
pub(crate) fn tier_labels(schedule: &Schedule) -> Vec<Arc<str>> {
    match schedule {
        Schedule::Tiers(tiers) if !tiers.is_empty() => {
            tiers.iter().map(|tier| duration::print(*tier).into()).collect()
        }
        Schedule::Tiers(_) | Schedule::Exponential { .. } => vec!["backoff".into()],
        Schedule::Fixed(_) => vec!["fixed".into()],
        Schedule::Custom(_) => vec!["custom".into()],
    }
}
