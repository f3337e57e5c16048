//! One batch, offered until it is acknowledged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::answer::BatchAnswer;
use super::batch::OrderBatch;
use super::progress::{Counters, Progress, add};
use super::schedule::Schedule;
use super::target::Target;

/// The first wait after a refusal; doubles up to [`WAIT_MAX`].
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A longer Retry-After is capped; otherwise the run would appear to hang.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// The state that all offers of a run share.
#[derive(Debug)]
pub(super) struct RunState {
    pub(super) target: Target,
    pub(super) counters: Counters,
    /// Offered but unacknowledged batches, by their first number. Bounded by the limit of requests in flight.
    open: Mutex<BTreeMap<u64, Range<u64>>>,
    ids: Option<Mutex<BufWriter<File>>>,
    end: Mutex<Option<End>>,
    /// Notified when the run has to end early.
    pub(super) ended: Notify,
}

/// Why a run ends early.
#[derive(Debug)]
pub(super) enum End {
    Rejected(String),
    IdsFile(io::Error),
}

impl RunState {
    pub(super) fn new(target: Target, ids: Option<File>) -> Self {
        Self {
            target,
            counters: Counters::default(),
            open: Mutex::default(),
            ids: ids.map(|file| Mutex::new(BufWriter::new(file))),
            end: Mutex::default(),
            ended: Notify::new(),
        }
    }

    /// The progress of the run that began at `started`.
    pub(super) fn progress(&self, schedule: Schedule, started: Instant) -> Progress {
        let elapsed = started.elapsed();
        Progress::of(&self.counters, elapsed, schedule.due_by(elapsed), schedule.rate)
    }

    /// Offers `batch` until it is accepted or rejected for good.
    pub(super) async fn offer(&self, batch: Arc<OrderBatch>) {
        self.open().insert(batch.numbers.start, batch.numbers.clone());
        for round in 0.. {
            match self.target.offer(&batch).await {
                BatchAnswer::Accepted { duplicates } => return self.acknowledged(&batch, duplicates),
                BatchAnswer::Rejected { why } => return self.end_with(End::Rejected(why)),
                BatchAnswer::Refused { retry_after } => {
                    add(&self.counters.refused, batch.len());
                    tokio::time::sleep(wait(round, retry_after)).await;
                }
                BatchAnswer::Unreachable { why } => {
                    *self.counters.trouble() = Some(why);
                    add(&self.counters.unreachable, batch.len());
                    tokio::time::sleep(wait(round, None)).await;
                }
            }
        }
    }

    fn acknowledged(&self, batch: &OrderBatch, duplicates: u64) {
        add(&self.counters.accepted, batch.len());
        add(&self.counters.duplicates, duplicates);
        self.counters.trouble().take();
        self.open().remove(&batch.numbers.start);
        let Some(ids) = &self.ids else { return };
        let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
        let written = batch.orders.iter().try_for_each(|order| writeln!(ids, "{}", order.id));
        if let Err(error) = written {
            self.end_with(End::IdsFile(error));
        }
    }

    fn end_with(&self, end: End) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
        // `notify_one` stores a permit, so that a later listener is notified too.
        self.ended.notify_one();
    }

    /// Takes the reason why the run ended early, if it did.
    pub(super) fn take_end(&self) -> Option<End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn unanswered(&self) -> Vec<Range<u64>> {
        self.open().values().cloned().collect()
    }

    /// Writes out buffered ids.
    pub(super) fn flush_ids(&self) -> io::Result<()> {
        let Some(ids) = &self.ids else { return Ok(()) };
        let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.flush()?;
        ids.get_ref().sync_data()
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Range<u64>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wait before offer `round + 1`: the target's request, but at least the doubling wait.
fn wait(round: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = WAIT_FIRST.saturating_mul(2_u32.saturating_pow(round)).min(WAIT_MAX);
    doubled.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds_and_retry_after_is_a_floor() {
        let secs = Duration::from_secs;
        assert_eq!([0, 1, 2].map(|round| wait(round, None)), [100, 200, 400].map(Duration::from_millis));
        assert_eq!(wait(60, None), secs(5));
        assert_eq!(wait(u32::MAX, None), secs(5));
        assert_eq!(wait(0, Some(secs(7))), secs(7));
        assert_eq!(wait(60, Some(secs(1))), secs(5));
        assert_eq!(wait(0, Some(secs(86_400))), secs(60));
    }
}
