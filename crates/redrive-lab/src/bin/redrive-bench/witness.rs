//! The handler of every run. Records attempts and successes per message, and how late retries were.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive::{DeadLetter, Failure, Message};
use redrive_lab::bench::{Histogram, Striped};
use redrive_lab::{fate::Fate, order};

/// How the handler decides whether a message fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchFates {
    /// All tracked messages succeed; all others fail, so that they wait for their retry.
    AllSucceed,
    /// The fates of the workload.
    Workload,
    /// One in `n` messages fails once.
    OneIn(u64),
}

/// What the handler saw of each message.
#[derive(Debug)]
pub struct BenchWitness {
    fates: BenchFates,
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
    /// Files with attempts and successes, which survive a kill.
    traces: Option<HandlerTraces>,
}

#[derive(Debug)]
struct HandlerTraces {
    attempts: File,
    successes: File,
}

const DELAYS_MS: [u64; 3] = [1000, 2000, 4000];

impl BenchWitness {
    /// Tracks the messages below `n`.
    pub fn new(n: u64, fates: BenchFates) -> Self {
        let bytes = || (0..n).map(|_| AtomicU8::new(0)).collect();
        let witness = Self {
            fates,
            attempts: bytes(),
            successes: bytes(),
            dead: bytes(),
            due_ms: Vec::new(),
            first: Striped::default(),
            succeeded: Striped::default(),
            died: AtomicU64::new(0),
            late: Histogram::default(),
            traces: None,
        };
        if fates == BenchFates::AllSucceed { witness } else { witness.expecting() }
    }

    /// Allocates due times, which otherwise exist only if messages fail.
    pub fn expecting(mut self) -> Self {
        self.due_ms = self.attempts.iter().map(|_| AtomicU64::new(0)).collect();
        self
    }

    /// Also keeps attempts and successes in files, and continues from what an earlier process left there.
    pub fn with_traces(mut self, dir: &Path) -> std::io::Result<Self> {
        let open = |name: &str| {
            File::options().create(true).truncate(false).read(true).write(true).open(dir.join(name))
        };
        let traces = HandlerTraces { attempts: open("attempts")?, successes: open("successes")? };
        for (file, bytes) in
            [(&traces.attempts, &mut self.attempts), (&traces.successes, &mut self.successes)]
        {
            let mut seen = vec![0; bytes.len()];
            let read = file.read_at(&mut seen, 0)?;
            for (byte, seen) in bytes.iter_mut().zip(&seen[..read]) {
                *byte = AtomicU8::new(*seen);
            }
        }
        self.first.add(self.attempts.iter().filter(|count| count.load(Ordering::Relaxed) > 0).count() as u64);
        self.succeeded.add(count(&self.successes, |count| count > 0));
        self.traces = Some(traces);
        Ok(self)
    }

    /// Records that message `i` must not be attempted before `due_ms`.
    pub fn expect(&self, i: u64, due_ms: u64) {
        self.due_ms[i as usize].store(due_ms, Ordering::Relaxed);
    }

    /// The handler: records the call and decides the fate of the message.
    pub fn handle(&self, message: &Message) -> Result<(), Failure> {
        let id = message.id();
        let i = order::number(id).unwrap_or(0);
        let at = i as usize;
        if at >= self.attempts.len() {
            self.first.add(1);
            return Err(Failure::transient("503 service unavailable"));
        }
        let attempt = self.attempts[at].fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if let Some(traces) = &self.traces {
            let _ = traces.attempts.write_at(&[attempt], i);
        }
        if attempt == 1 {
            self.first.add(1);
        }
        let due_ms = self.due_ms.get(at).map_or(0, |due| due.load(Ordering::Relaxed));
        if due_ms != 0 {
            self.late.record(wall_micros().saturating_sub(due_ms * 1000));
        }
        let fails = match self.fates {
            BenchFates::AllSucceed => false,
            BenchFates::Workload => Fate::of(id).fails(attempt),
            BenchFates::OneIn(n) => attempt == 1 && i.is_multiple_of(n),
        };
        if fails {
            if let Some(delay) = DELAYS_MS.get(usize::from(attempt) - 1) {
                self.expect(i, wall_micros() / 1000 + delay);
            }
            return Err(Failure::transient("503 service unavailable"));
        }
        let before = self.successes[at].fetch_add(1, Ordering::Relaxed);
        if let Some(traces) = &self.traces {
            let _ = traces.successes.write_at(&[before.saturating_add(1)], i);
        }
        if before == 0 {
            self.succeeded.add(1);
        }
        Ok(())
    }

    pub fn parked(&self, letter: &DeadLetter) {
        self.bury(letter.message.id());
    }

    /// Records that the message with this id is a dead letter.
    pub fn bury(&self, id: &str) {
        let i = order::number(id).unwrap_or(0) as usize;
        if self.dead[i].fetch_add(1, Ordering::Relaxed) == 0 {
            self.died.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn terminal(&self) -> u64 {
        self.succeeded.sum() + self.died.load(Ordering::Relaxed)
    }

    /// Counts faults among the first `n` messages: lost, succeeded more than once, both succeeded and dead.
    pub fn faults(&self, n: u64) -> (u64, u64, u64) {
        let ends = || self.successes.iter().zip(&self.dead).take(n as usize);
        let ends = || ends().map(|(s, d)| (s.load(Ordering::Relaxed), d.load(Ordering::Relaxed)));
        let lost = ends().filter(|(s, d)| *s == 0 && *d == 0).count() as u64;
        let both = ends().filter(|(s, d)| *s > 0 && *d > 0).count() as u64;
        (lost, count(&self.successes, |count| count > 1), both)
    }
}

fn count(bytes: &[AtomicU8], is: impl Fn(u8) -> bool) -> u64 {
    bytes.iter().filter(|byte| is(byte.load(Ordering::Relaxed))).count() as u64
}

pub fn wall_micros() -> u64 {
    let since: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
