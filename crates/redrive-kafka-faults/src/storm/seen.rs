//! What the receiver saw and how it answered.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use redrive_lab::fate::Fate;
use redrive_lab::kafka::trace;
use redrive_lab::order;

use super::flow::Flow;

/// One call that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub number: u64,
    /// Partition of the source record.
    pub partition: i32,
    pub arrived_us: u64,
    /// Taken before the answer was sent, so the processor learns of it later.
    pub answered_us: u64,
    pub succeeded: bool,
}

/// Shared between the receiver, the load and the storm.
#[derive(Debug, Default)]
pub struct CallLog {
    flows: [Mutex<SeenCalls>; 2],
}

#[derive(Debug, Default)]
struct SeenCalls {
    attempts: Vec<Attempt>,
    failed: HashMap<u64, u8>,
    reached: HashSet<u64>,
    succeeded: HashSet<u64>,
    /// Poison that was repaired: it succeeds from now on.
    repaired: HashSet<u64>,
    /// The last arrival for each partition.
    last_us: HashMap<i32, u64>,
}

impl CallLog {
    /// Decides how a call is answered and records it. A record that succeeded once always succeeds.
    pub fn answer(&self, flow: Flow, number: u64, partition: i32, arrived_us: u64) -> bool {
        let mut calls = self.calls(flow);
        let SeenCalls { failed, repaired, .. } = &mut *calls;
        let failures = failed.entry(number).or_default();
        let succeeded = match Fate::of(&order::id(number)) {
            Fate::Success => true,
            Fate::Transient { failures: wanted } => *failures >= wanted,
            Fate::Poison => repaired.contains(&number),
        };
        if !succeeded {
            *failures = failures.saturating_add(1);
        }
        calls.reached.insert(number);
        if succeeded {
            calls.succeeded.insert(number);
        }
        let last = calls.last_us.entry(partition).or_default();
        *last = arrived_us.max(*last);
        calls.attempts.push(Attempt {
            number,
            partition,
            arrived_us,
            answered_us: trace::wall_us(),
            succeeded,
        });
        succeeded
    }

    /// Makes these succeed from now on.
    pub fn repair(&self, flow: Flow, numbers: &[u64]) {
        self.calls(flow).repaired.extend(numbers);
    }

    /// Returns how many records were attempted at least once.
    pub fn reached(&self, flow: Flow) -> u64 {
        self.calls(flow).reached.len() as u64
    }

    /// Returns those of the first `produced` records that never succeeded.
    pub fn open(&self, flow: Flow, produced: u64) -> HashSet<u64> {
        let calls = self.calls(flow);
        (0..produced).filter(|number| !calls.succeeded.contains(number)).collect()
    }

    pub fn have_succeeded(&self, flow: Flow, numbers: &[u64]) -> bool {
        let calls = self.calls(flow);
        numbers.iter().all(|number| calls.succeeded.contains(number))
    }

    /// Returns the partitions without a call since then.
    pub fn silent_since(&self, flow: Flow, partitions: i32, since_us: u64) -> Vec<i32> {
        let calls = self.calls(flow);
        let is_silent = |partition: &i32| calls.last_us.get(partition).is_none_or(|last| *last <= since_us);
        (0..partitions).filter(is_silent).collect()
    }

    /// Returns when the last call arrived; 0 before the first.
    pub fn last_us(&self, flow: Flow) -> u64 {
        self.calls(flow).last_us.values().copied().max().unwrap_or(0)
    }

    /// Counts the calls that arrived between two moments.
    pub fn arrived_between(&self, flow: Flow, from_us: u64, to_us: u64) -> u64 {
        let calls = self.calls(flow);
        let within = |attempt: &&Attempt| (from_us..to_us).contains(&attempt.arrived_us);
        calls.attempts.iter().filter(within).count() as u64
    }

    /// Returns all calls so far, in the order of the answers.
    pub fn attempts(&self, flow: Flow) -> Vec<Attempt> {
        self.calls(flow).attempts.clone()
    }

    fn calls(&self, flow: Flow) -> MutexGuard<'_, SeenCalls> {
        self.flows[flow.index()].lock().expect("no call panics")
    }
}
