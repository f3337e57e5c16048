//! Records what the downstream saw of each message, by number. Any thread may write.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::call_log::CallLog;
use super::record::{BUCKET_MS, MessageRecord, NEVER};

#[derive(Debug)]
struct Slot {
    arrived_ms: AtomicU32,
    first_ms: AtomicU32,
    ended_ms: AtomicU32,
    order: AtomicU32,
    calls: AtomicU16,
    successes: AtomicU8,
    deaths: AtomicU8,
}

impl Slot {
    fn new() -> Self {
        Self {
            arrived_ms: AtomicU32::new(NEVER),
            first_ms: AtomicU32::new(NEVER),
            ended_ms: AtomicU32::new(NEVER),
            order: AtomicU32::new(NEVER),
            calls: AtomicU16::new(0),
            successes: AtomicU8::new(0),
            deaths: AtomicU8::new(0),
        }
    }
}

#[derive(Debug)]
pub struct Recorder {
    slots: Vec<Slot>,
    /// Numbers effects in the order they happen; milliseconds are too coarse for that.
    effects: AtomicU32,
    /// Messages that have had their first call.
    started: AtomicU64,
    /// Messages that have ended.
    ended: AtomicU64,
    died: AtomicU64,
    /// All calls and failed calls, per [`BUCKET_MS`].
    calls: Vec<AtomicU32>,
    failed: Vec<AtomicU32>,
}

impl Recorder {
    /// A recorder for `messages` messages in a run of length `span`. Later events count in the last bucket.
    pub fn new(messages: u64, span: Duration) -> Self {
        let buckets = span.as_millis() as usize / BUCKET_MS as usize + 2;
        let series = || (0..buckets).map(|_| AtomicU32::new(0)).collect();
        Self {
            slots: (0..messages).map(|_| Slot::new()).collect(),
            effects: AtomicU32::new(0),
            started: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            died: AtomicU64::new(0),
            calls: series(),
            failed: series(),
        }
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize]
    }

    fn end(&self, slot: &Slot, at: Duration) {
        slot.ended_ms.store(ms(at), Relaxed);
        self.ended.fetch_add(1, Relaxed);
    }

    pub fn records(&self) -> Vec<MessageRecord> {
        let record = |slot: &Slot| MessageRecord {
            arrived_ms: slot.arrived_ms.load(Relaxed),
            first_ms: slot.first_ms.load(Relaxed),
            ended_ms: slot.ended_ms.load(Relaxed),
            order: slot.order.load(Relaxed),
            calls: slot.calls.load(Relaxed),
            successes: slot.successes.load(Relaxed),
            deaths: slot.deaths.load(Relaxed),
        };
        self.slots.iter().map(record).collect()
    }

    /// All calls and failed calls, per [`BUCKET_MS`].
    pub fn series(&self) -> [Vec<u32>; 2] {
        [&self.calls, &self.failed].map(|series| series.iter().map(|at| at.load(Relaxed)).collect())
    }
}

impl CallLog for Recorder {
    fn arrived(&self, number: u64, at: Duration) {
        self.slot(number).arrived_ms.store(ms(at), Relaxed);
    }

    fn called(&self, number: u64, at: Duration) -> u16 {
        let slot = self.slot(number);
        let call = slot.calls.fetch_add(1, Relaxed) + 1;
        if call == 1 {
            slot.first_ms.store(ms(at), Relaxed);
            self.started.fetch_add(1, Relaxed);
        }
        count(&self.calls, at);
        call
    }

    fn failed(&self, at: Duration) {
        count(&self.failed, at);
    }

    fn succeeded(&self, number: u64, at: Duration) {
        let slot = self.slot(number);
        if slot.successes.fetch_add(1, Relaxed) == 0 {
            slot.order.store(self.effects.fetch_add(1, Relaxed), Relaxed);
            self.end(slot, at);
        }
    }

    fn died(&self, number: u64, at: Duration) {
        let slot = self.slot(number);
        if slot.deaths.fetch_add(1, Relaxed) == 0 {
            self.died.fetch_add(1, Relaxed);
            self.end(slot, at);
        }
    }

    fn started(&self) -> u64 {
        self.started.load(Relaxed)
    }

    fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    fn dead(&self) -> u64 {
        self.died.load(Relaxed)
    }
}

fn ms(at: Duration) -> u32 {
    u32::try_from(at.as_millis()).unwrap_or(NEVER - 1)
}

fn count(series: &[AtomicU32], at: Duration) {
    let bucket = (at.as_millis() as usize / BUCKET_MS as usize).min(series.len() - 1);
    series[bucket].fetch_add(1, Relaxed);
}
