//! The result of a run, with the input of an audit: which ids exist, and for which it is unknown whether they were
//! accepted.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::progress::Progress;
use crate::seed;

#[derive(Clone, Debug, PartialEq)]
pub struct ProducerReport {
    pub seed: u64,
    /// The numbers of all offered orders; [`ProducerReport::id`] maps them to ids.
    pub numbers: Range<u64>,
    /// Numbers offered but not acknowledged by the end: they may or may not have been accepted. Sorted, at most one
    /// range per request in flight.
    pub unanswered: Vec<Range<u64>>,
    /// Poison among the offered orders.
    pub poison: u64,
    pub transient: u64,
    /// The final counters; `rate` is that of the whole run.
    pub total: Progress,
    pub late_p50: Duration,
    /// Whether the run was stopped before its schedule was over.
    pub stopped: bool,
}

impl ProducerReport {
    pub fn id(&self, number: u64) -> String {
        seed::id(self.seed, number)
    }

    /// The ids of all offered orders.
    pub fn ids(&self) -> impl Iterator<Item = String> + '_ {
        self.numbers.clone().map(|number| self.id(number))
    }

    pub fn unanswered_count(&self) -> u64 {
        self.unanswered.iter().map(|range| range.end - range.start).sum()
    }
}

impl fmt::Display for ProducerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = &self.total;
        if self.numbers.is_empty() {
            write!(f, "produced 0")?;
        } else {
            let (first, last) = (self.id(self.numbers.start), self.id(self.numbers.end - 1));
            write!(f, "produced {}  ids {first} … {last}", total.sent)?;
        }
        writeln!(f, "  poison {}  transient {}  seed {}", self.poison, self.transient, self.seed)?;
        writeln!(
            f,
            "accepted {}  duplicates {}  unanswered {}  refused {}  unreachable {}",
            total.accepted,
            total.duplicates,
            self.unanswered_count(),
            total.refused,
            total.unreachable
        )?;
        write!(
            f,
            "{:.1} s  {:.0}/s  late p50 {} ms  p99 {} ms  max {} ms  held {}",
            total.elapsed.as_secs_f64(),
            total.rate,
            self.late_p50.as_millis(),
            total.late_p99.as_millis(),
            total.late_max.as_millis(),
            total.held
        )
    }
}
