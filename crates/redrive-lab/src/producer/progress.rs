//! The progress of a run.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::lateness::Lateness;
use crate::metrics::{Text, producer as names};

/// Live counters. All except `in_flight` and `held` count orders.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) sent: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unreachable: AtomicU64,
    pub(super) poison: AtomicU64,
    pub(super) transient: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) held: AtomicU64,
    lateness: Mutex<Lateness>,
    trouble: Mutex<Option<String>>,
}

impl Counters {
    pub(super) fn lateness(&self) -> MutexGuard<'_, Lateness> {
        self.lateness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the last unanswered request failed; `None` once a batch is accepted.
    pub(super) fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

pub(super) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A snapshot of the progress.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Progress {
    pub elapsed: Duration,
    /// Orders due so far.
    pub due: u64,
    /// Orders offered, each counted once.
    pub sent: u64,
    /// Orders acknowledged.
    pub accepted: u64,
    /// Acknowledged orders that the target already knew.
    pub duplicates: u64,
    /// Temporarily refused orders; each refusal counts.
    pub refused: u64,
    /// Orders whose request got no response; each time counts.
    pub unreachable: u64,
    /// Requests not yet answered.
    pub in_flight: u64,
    /// Requests that became due while the limit of requests in flight was reached.
    pub held: u64,
    /// Orders sent per second since the previous progress.
    pub rate: f64,
    /// How far sending is currently behind schedule.
    pub behind: Duration,
    pub late_p99: Duration,
    pub late_max: Duration,
    /// Why requests get no response, while they do not.
    pub trouble: Option<String>,
}

impl Progress {
    pub(super) fn of(counters: &Counters, elapsed: Duration, due: u64, rate_asked: f64) -> Self {
        let (late_p99, late_max) = {
            let lateness = counters.lateness();
            (lateness.quantile(0.99), lateness.max())
        };
        let sent = get(&counters.sent);
        Self {
            elapsed,
            due,
            sent,
            accepted: get(&counters.accepted),
            duplicates: get(&counters.duplicates),
            refused: get(&counters.refused),
            unreachable: get(&counters.unreachable),
            in_flight: get(&counters.in_flight),
            held: get(&counters.held),
            rate: 0.0,
            behind: Duration::try_from_secs_f64(due.saturating_sub(sent) as f64 / rate_asked)
                .unwrap_or_default(),
            late_p99,
            late_max,
            trouble: counters.trouble().clone(),
        }
    }

    /// Sets the rate since `before`.
    pub(super) fn since(self, before: &Self) -> Self {
        let span = self.elapsed.saturating_sub(before.elapsed).as_secs_f64();
        let sent = self.sent.saturating_sub(before.sent) as f64;
        Self { rate: if span > 0.0 { sent / span } else { 0.0 }, ..self }
    }

    pub(super) fn to_metrics(&self, lateness: &Lateness) -> String {
        let mut text = Text::default();
        for (family, value) in [
            (names::DUE, self.due),
            (names::SENT, self.sent),
            (names::ACCEPTED, self.accepted),
            (names::DUPLICATES, self.duplicates),
            (names::REFUSED, self.refused),
            (names::UNREACHABLE, self.unreachable),
            (names::IN_FLIGHT, self.in_flight),
            (names::HELD, self.held),
        ] {
            text.value(family, value);
        }
        lateness.write(&mut text);
        text.into_string()
    }
}

/// Formats one line: `00:20  sent 1000  accepted 998  50/s  behind 0 ms`, plus anything unusual.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.elapsed.as_secs();
        write!(
            f,
            "{:02}:{:02}  sent {}  accepted {}  {:.0}/s  behind {} ms  late p99 {} ms",
            secs / 60,
            secs % 60,
            self.sent,
            self.accepted,
            self.rate,
            self.behind.as_millis(),
            self.late_p99.as_millis()
        )?;
        for (name, count) in
            [("refused", self.refused), ("unreachable", self.unreachable), ("duplicates", self.duplicates)]
        {
            if count > 0 {
                write!(f, "  {name} {count}")?;
            }
        }
        self.trouble.as_ref().map_or(Ok(()), |why| write!(f, "  ({why})"))
    }
}
