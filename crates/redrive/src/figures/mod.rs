//! The figures of a pipeline: its counters and its current state, as plain numbers.
//!
//! The dispatch thread counts in its own fields, without an atomic or a lock per message, and publishes a copy at
//! most every 50 ms. Readers get that copy and never make the thread wait.

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
    /// Calls that returned. A call that was abandoned counts in `repeats` instead.
    pub attempts: ByClass,
    /// Calls that a message needed until it succeeded or died; a replay starts again at zero.
    pub attempts_per_message: Histogram,
    /// Messages that needed more than one call, by whether they succeeded in the end.
    pub retried_ended: RetriedEnded,
    /// Messages that were taken for the first time.
    pub consumed: u64,
    /// Retries and deferrals after failed attempts, by tier.
    pub retries: Vec<TierRetries>,
    /// Deferrals: those of the retries that used up no attempt, and messages deferred without a call.
    pub deferred: u64,
    /// How late messages with a due time started. Messages with a key count from the second attempt on: before that
    /// they may have waited for their key, which is not lateness.
    pub retry_lateness: Histogram,
    /// How long messages waited behind others before the first attempt. The pipeline counts as one queue, and in
    /// blocking mode a message that waits in place holds it up.
    pub stall: Histogram,
    /// From a message's creation until it succeeded.
    pub end_to_end: Histogram,
    /// From giving verdicts to the engine until they are durable, once per verdict.
    pub settle_duration: Histogram,
    /// From the decision to retry until it is durable.
    pub schedule_write: Histogram,
    /// Latencies, held times and failures of the last five minutes.
    pub recent: RecentFigures,
    /// Messages and letters by state at one moment. Messages in flight hold a permit. While nothing may start
    /// (paused, breaker open, the sink asked to wait), messages that would be ready or delayed count as held.
    pub pending: Counts,
    /// Arriving messages per second, over the last minute.
    pub arrivals_per_second: f64,
    /// The creation time of the oldest message that is not terminal. Determined once a second from the running
    /// messages, the head of the queue and the next due one; one that waits far behind these is found when its turn
    /// comes.
    pub oldest_pending: Option<Time>,
    /// How long the first message that could start has been waiting; zero if none waits. On Kafka it is given per
    /// partition (`condition`). Updated once a second.
    pub stalled_for: Duration,
    /// When the first open letter, by number, died. Letters are searched in steps, so after a start with many
    /// resolved ones this takes a few seconds to appear.
    pub oldest_letter: Option<Time>,
    /// Whether it is paused, by an operator or by the dead-letter guard.
    pub paused: bool,
    /// Handlers that are running.
    pub running: usize,
    /// Calls that wait in place for their next attempt; only in blocking mode.
    pub waiting_in_place: usize,
    /// Calls abandoned before they returned: their effect may have happened, and they will be repeated.
    pub repeats: u64,
    /// The health of the sink: breaker, permits, budget, suspects.
    pub health: HealthFigures,
    /// Keys whose order was not preserved. Always zero on engines with one owner.
    pub key_order_voided: u64,
    /// How often the store repaired itself, and how far it has scrubbed itself.
    pub upkeep: Upkeep,
    /// The condition of the engine besides its messages.
    pub condition: Condition,
}

/// The outcome of messages whose first call failed and that were called again. A replay starts again at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RetriedEnded {
    /// Messages that were delivered.
    pub succeeded: u64,
    /// Messages that became dead letters.
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

    /// Whether only probes may start: it is paused, its breaker is open, or its sink asked to wait.
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
    /// The figures of a new pipeline with the default policy.
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
