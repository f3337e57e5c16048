//! A log for long runs: one byte per message, and sums per second. Audits 60 million ids in 60 MB.

use std::hint::black_box;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::audit::{Audit, IdFacts};
use super::call_log::CallLog;
use super::letters::LetterSet;
use super::load::Load;
use super::trace::EngineCounts;
use crate::bench::histogram::Histogram;
use crate::bench::machine;

/// The low bits count calls; no scenario has more attempts.
const CALLS: u8 = 0x0f;
const ARRIVED: u8 = 0x10;
const SUCCEEDED: u8 = 0x20;
const DEAD: u8 = 0x40;
const TWICE: u8 = 0x80;

#[derive(Debug)]
pub struct ByteLog {
    messages: Vec<AtomicU8>,
    load: Load,
    ended: AtomicU64,
    died: AtomicU64,
    seconds: Vec<SecondCounts>,
    /// From the due time of the arrival to the first call.
    waited: Histogram,
}

/// Counts for one second of the run.
#[derive(Debug, Default)]
struct SecondCounts {
    arrived: AtomicU32,
    first_calls: AtomicU32,
    calls: AtomicU32,
    /// Memory of the process in MB; 0 if nothing happened in this second.
    memory_mb: AtomicU32,
}

/// A figure over time: (seconds, value).
pub type Series = Vec<(f64, f64)>;

impl ByteLog {
    pub fn new(load: &Load) -> Self {
        let seconds = load.ends().as_secs() as usize + 2;
        Self {
            // Written now: untouched memory becomes resident only on first use, and would look like growth of the
            // engine.
            messages: (0..load.messages()).map(|_| AtomicU8::new(black_box(0))).collect(),
            load: load.clone(),
            ended: AtomicU64::new(0),
            died: AtomicU64::new(0),
            seconds: (0..seconds).map(|_| SecondCounts::default()).collect(),
            waited: Histogram::default(),
        }
    }

    /// The counts of a second; anything after the end of the run counts in the last second.
    fn second(&self, at: Duration) -> &SecondCounts {
        let second = &self.seconds[(at.as_secs() as usize).min(self.seconds.len() - 1)];
        if second.memory_mb.load(Relaxed) == 0 {
            second.memory_mb.store((machine::rss_mb() as u32).max(1), Relaxed);
        }
        second
    }

    fn state(&self, number: u64) -> &AtomicU8 {
        &self.messages[number as usize]
    }

    /// Memory of the audit in bytes.
    pub fn bytes(&self) -> usize {
        self.messages.len()
    }

    /// Audits the run. `letters` are the numbers of the messages with a stored letter; temporarily needs another bit
    /// per id.
    pub fn audit(&self, engine: EngineCounts, letters: &[u64]) -> Audit {
        let ids = self.messages.iter().map(|state| {
            let state = state.load(Relaxed);
            let is = |bit: u8| state & bit != 0;
            IdFacts { arrived: is(ARRIVED), succeeded: is(SUCCEEDED), twice: is(TWICE), announced: is(DEAD) }
        });
        Audit::by_id(ids, &LetterSet::new(self.messages.len() as u64, letters), engine)
    }

    pub fn total_calls(&self) -> u64 {
        self.seconds.iter().map(|second| u64::from(second.calls.load(Relaxed))).sum()
    }

    fn series(&self, of: impl FnMut(&SecondCounts) -> f64) -> Series {
        let whole = self.load.arrive_for.as_secs() as usize;
        let values = self.seconds.iter().take(whole.max(1)).map(of);
        values.enumerate().map(|(second, value)| (second as f64, value)).collect()
    }

    /// First calls per second, while messages arrive.
    pub fn first_calls(&self) -> Series {
        self.series(|second| f64::from(second.first_calls.load(Relaxed)))
    }

    pub fn calls(&self) -> Series {
        self.series(|second| f64::from(second.calls.load(Relaxed)))
    }

    /// Messages that arrived but had no first call, at the end of each second.
    pub fn lag(&self) -> Series {
        let mut lag = 0.0;
        self.series(|second| {
            lag += f64::from(second.arrived.load(Relaxed)) - f64::from(second.first_calls.load(Relaxed));
            lag
        })
    }

    /// Memory of the process in MB; a second in which nothing happened repeats the previous value.
    pub fn memory_mb(&self) -> Series {
        let mut last = 0.0;
        self.series(|second| {
            let now = f64::from(second.memory_mb.load(Relaxed));
            last = if now > 0.0 { now } else { last };
            last
        })
    }

    /// A quantile of the time that messages waited for their first call, in milliseconds.
    pub fn waited_ms(&self, share: f64) -> f64 {
        self.waited.quantile_ms(share)
    }
}

impl CallLog for ByteLog {
    fn arrived(&self, number: u64, at: Duration) {
        self.state(number).fetch_or(ARRIVED, Relaxed);
        self.second(at).arrived.fetch_add(1, Relaxed);
    }

    fn called(&self, number: u64, at: Duration) -> u16 {
        let one_more = |state: u8| (state & CALLS < CALLS).then_some(state + 1);
        let before = self.state(number).fetch_update(Relaxed, Relaxed, one_more);
        let call = before.map_or(CALLS, |state| (state & CALLS) + 1);
        let second = self.second(at);
        second.calls.fetch_add(1, Relaxed);
        if call == 1 {
            second.first_calls.fetch_add(1, Relaxed);
            let due = Duration::from_millis(self.load.arrives_ms(number));
            self.waited.record(at.saturating_sub(due).as_micros() as u64);
        }
        u16::from(call)
    }

    fn failed(&self, _at: Duration) {}

    fn succeeded(&self, number: u64, _at: Duration) {
        let state = self.state(number);
        if state.fetch_or(SUCCEEDED, Relaxed) & SUCCEEDED == 0 {
            self.ended.fetch_add(1, Relaxed);
        } else {
            state.fetch_or(TWICE, Relaxed);
        }
    }

    fn died(&self, number: u64, _at: Duration) {
        if self.state(number).fetch_or(DEAD, Relaxed) & DEAD == 0 {
            self.died.fetch_add(1, Relaxed);
            self.ended.fetch_add(1, Relaxed);
        }
    }

    fn started(&self) -> u64 {
        self.seconds.iter().map(|second| u64::from(second.first_calls.load(Relaxed))).sum()
    }

    fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    fn dead(&self) -> u64 {
        self.died.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn log() -> ByteLog {
        ByteLog::new(&Load::steady(42, 5.0, at(2_000)))
    }

    fn counted(accepted: u64, pending: u64, letters: u64) -> EngineCounts {
        EngineCounts { accepted, pending, letters }
    }

    #[test]
    fn one_byte_per_id_tells_every_way_to_end() {
        let log = log();
        assert_eq!(log.bytes(), 10);
        (0..4).for_each(|number| log.arrived(number, at(0)));
        assert_eq!((log.called(0, at(5)), log.called(0, at(6))), (1, 2));
        log.succeeded(0, at(7));
        log.died(1, at(7));
        let audit = log.audit(counted(4, 2, 1), &[1]);
        assert!(audit.balances(), "{audit}");
        assert_eq!((audit.produced, audit.succeeded, audit.dead, audit.pending), (4, 1, 1, 2));
        let lost = log.audit(counted(4, 2, 1), &[]);
        assert!(lost.announced_only == 1 && !lost.balances(), "{lost}");
        log.succeeded(0, at(8));
        log.died(0, at(8));
        let audit = log.audit(counted(4, 2, 2), &[0, 1]);
        assert_eq!((audit.applied_twice, audit.applied_and_dead), (1, 1));
        assert!(!audit.balances(), "{audit}");
    }

    #[test]
    fn calls_beyond_the_bits_of_a_byte_do_not_reach_the_other_bits() {
        let log = log();
        for _ in 0..100 {
            log.called(3, at(0));
        }
        assert_eq!(log.called(3, at(0)), u16::from(CALLS));
        assert_eq!(log.audit(EngineCounts::default(), &[]).produced, 0, "it never arrived");
    }

    #[test]
    fn lag_is_what_arrived_and_was_not_called() {
        let log = log();
        (0..5).for_each(|number| log.arrived(number, at(0)));
        for number in 0..2 {
            log.called(number, at(500));
        }
        for number in 2..5 {
            log.called(number, at(1_500));
        }
        assert_eq!(log.lag(), [(0.0, 3.0), (1.0, 0.0)]);
        assert!(log.memory_mb().iter().all(|(_, mb)| *mb >= 1.0));
        assert!(log.waited_ms(1.0) >= 900.0, "number 2 was due at 400 ms and called at 1,500");
    }
}
