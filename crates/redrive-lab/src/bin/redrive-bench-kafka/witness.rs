//! The handler of every run. Records attempts and successes per order, how long records waited, and how late retries
//! were.

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use redrive::{DeadLetter, Failure, Message};
use redrive_lab::bench::{Histogram, Striped};
use redrive_lab::fate::Fate;
use redrive_lab::kafka::orders;
use redrive_lab::kafka::trace::{Trace, wall_us};
use redrive_lab::order;

use super::options::KafkaBenchFates;

const DELAYS_MS: [u64; 3] = [1000, 2000, 4000];

/// What the handler saw of each message.
#[derive(Debug)]
pub struct KafkaBenchWitness {
    fates: KafkaBenchFates,
    /// The number of the only order that fails, on every attempt; overrides the fates.
    poison: Option<u64>,
    attempts: Vec<AtomicU8>,
    successes: Vec<AtomicU8>,
    dead: Vec<AtomicU8>,
    /// Due time of the next attempt in wall-clock milliseconds; 0 if none is expected. Empty if no retries are
    /// expected.
    due_ms: Vec<AtomicU64>,
    pub first: Striped,
    pub succeeded: Striped,
    pub died: AtomicU64,
    pub late: Histogram,
    /// Time from the creation of a record to its first attempt, poison excluded.
    pub waited: Histogram,
    trace: Option<Trace>,
}

impl KafkaBenchWitness {
    /// Tracks the orders below `n`.
    pub fn new(
        n: u64,
        fates: KafkaBenchFates,
        poison: Option<u64>,
        trace: Option<&Path>,
    ) -> std::io::Result<Self> {
        let bytes = || (0..n).map(|_| AtomicU8::new(0)).collect::<Vec<_>>();
        let fails = fates == KafkaBenchFates::Workload || poison.is_some();
        Ok(Self {
            fates,
            poison,
            attempts: bytes(),
            successes: bytes(),
            dead: bytes(),
            due_ms: if fails { (0..n).map(|_| AtomicU64::new(0)).collect() } else { Vec::new() },
            first: Striped::default(),
            succeeded: Striped::default(),
            died: AtomicU64::new(0),
            late: Histogram::default(),
            waited: Histogram::default(),
            trace: trace.map(Trace::append).transpose()?,
        })
    }

    /// The handler: records the call and decides the fate of the message.
    pub fn handle(&self, message: &Message) -> Result<(), Failure> {
        let i = message.payload().and_then(orders::number).unwrap_or(u64::MAX);
        let Some(attempts) = self.attempts.get(i as usize) else {
            return Err(Failure::permanent("no order of this run"));
        };
        let attempt = attempts.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if attempt == 1 {
            self.first.add(1);
            if self.poison != Some(i) {
                self.waited.record(wall_us().saturating_sub(message.created().as_millis() * 1000));
            }
        }
        let due = self.due_ms.get(i as usize);
        if let Some(due_ms) = due.map(|due| due.load(Ordering::Relaxed)).filter(|due| *due != 0) {
            self.late.record(wall_us().saturating_sub(due_ms * 1000));
        }
        let fails = match (self.poison, self.fates) {
            (Some(poison), _) => poison == i,
            (None, KafkaBenchFates::Succeed) => false,
            (None, KafkaBenchFates::Workload) => Fate::of(&order::id(i)).fails(attempt),
        };
        if let Some(trace) = &self.trace {
            trace.record(i, attempt, !fails).map_err(Failure::transient)?;
        }
        if fails {
            if let (Some(due), Some(delay)) = (due, DELAYS_MS.get(usize::from(attempt) - 1)) {
                due.store(wall_us() / 1000 + delay, Ordering::Relaxed);
            }
            return Err(Failure::transient("503 service unavailable"));
        }
        if self.successes[i as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            self.succeeded.add(1);
        }
        Ok(())
    }

    pub fn parked(&self, letter: &DeadLetter) {
        let i = letter.message.payload().and_then(orders::number).unwrap_or(u64::MAX);
        if let Some(dead) = self.dead.get(i as usize)
            && dead.fetch_add(1, Ordering::Relaxed) == 0
        {
            self.died.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn terminal(&self) -> u64 {
        self.succeeded.sum() + self.died.load(Ordering::Relaxed)
    }

    /// Counts faults among the first `n` messages: lost, succeeded more than once, both succeeded and dead.
    pub fn faults(&self, n: u64) -> (u64, u64, u64) {
        let value = |byte: &AtomicU8| byte.load(Ordering::Relaxed);
        let (mut lost, mut repeated, mut both) = (0, 0, 0);
        for (successes, dead) in
            self.successes.iter().map(value).zip(self.dead.iter().map(value)).take(n as usize)
        {
            lost += u64::from(successes == 0 && dead == 0);
            repeated += u64::from(successes > 1);
            both += u64::from(successes > 0 && dead > 0);
        }
        (lost, repeated, both)
    }
}
