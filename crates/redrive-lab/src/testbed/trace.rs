//! How every message of a run ended, and the figures derived from it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::audit::{Audit, IdFacts};
use super::engine_metrics::EngineSample;
use super::letters::LetterSet;
use super::load::Load;
use super::record::{BUCKET_MS, MessageRecord, NEVER};
use super::recorder::Recorder;

/// The engine's counts at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounts {
    pub accepted: u64,
    pub pending: u64,
    pub letters: u64,
}

/// The end of a run on the real clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    pub engine: EngineCounts,
    pub ran_for: Duration,
    /// How often the breaker opened, not counting failed probe rounds.
    pub breaker_opened: u32,
    /// When it first opened, relative to the beginning of the run.
    pub breaker_first_ms: Option<u32>,
    /// The times at which people closed a letter.
    pub triaged_ms: Vec<u32>,
    /// The engine's metrics during the run.
    pub metrics: Vec<EngineSample>,
    /// Records in the source, its tiers and its dead letters, counted at the broker; `None` without a broker.
    pub broker_records: Option<u64>,
    /// Records in each tier, in order; empty without a broker.
    pub tier_records: Vec<u64>,
    /// The numbers of the messages with a stored letter.
    pub letters: Vec<u64>,
}

#[derive(Clone, Debug)]
pub struct Trace {
    pub load: Load,
    pub records: Vec<MessageRecord>,
    calls: Vec<u32>,
    failed: Vec<u32>,
    /// The times at which people closed a letter.
    pub triaged_ms: Vec<u32>,
    /// The engine's metrics during the run; empty on the virtual clock.
    pub metrics: Vec<EngineSample>,
    pub audit: Audit,
    /// Duration of the run on its own clock.
    pub ran_for: Duration,
    /// How often the breaker opened, not counting failed probe rounds.
    pub breaker_opened: u32,
    /// When it first opened, relative to the beginning of the run.
    pub breaker_first_ms: Option<u32>,
    broker_records: Option<u64>,
    tier_records: Vec<u64>,
}

impl Trace {
    /// Derives the trace; `letters` are the numbers of the messages with a stored letter.
    pub fn new(
        load: Load,
        recorder: &Recorder,
        engine: EngineCounts,
        letters: &[u64],
        ran_for: Duration,
    ) -> Self {
        let records = recorder.records();
        let [calls, failed] = recorder.series();
        let ids = records.iter().map(|record| IdFacts {
            arrived: record.has_arrived(),
            succeeded: record.has_succeeded(),
            twice: record.successes > 1,
            announced: record.is_dead(),
        });
        let audit = Audit::by_id(ids, &LetterSet::new(records.len() as u64, letters), engine);
        Self {
            load,
            records,
            calls,
            failed,
            triaged_ms: Vec::new(),
            metrics: Vec::new(),
            audit,
            ran_for,
            breaker_opened: 0,
            breaker_first_ms: None,
            broker_records: None,
            tier_records: Vec::new(),
        }
    }

    pub fn of_run(load: &Load, recorder: &Recorder, end: RunEnd) -> Self {
        let trace = Self::new(load.clone(), recorder, end.engine, &end.letters, end.ran_for);
        let RunEnd { breaker_opened, breaker_first_ms, triaged_ms, metrics, .. } = end;
        let (broker_records, tier_records) = (end.broker_records, end.tier_records);
        Self { triaged_ms, metrics, breaker_opened, breaker_first_ms, broker_records, tier_records, ..trace }
    }

    /// Records per message, counted at the broker; without a broker, one per call and one per dead letter.
    pub fn amplification(&self) -> f64 {
        let records = self.broker_records.unwrap_or(self.total_calls() + self.audit.dead);
        records as f64 / self.audit.produced.max(1) as f64
    }

    /// Retries per message after the delay of each tier, counted at the broker; without a broker, by the calls of
    /// each message.
    pub fn tier_load(&self, tiers: usize) -> Vec<f64> {
        let produced = self.audit.produced.max(1) as f64;
        let made = |tier: usize| {
            let by_calls = || self.arrived().filter(|(_, r)| usize::from(r.calls) > tier + 1).count() as u64;
            self.tier_records.get(tier).copied().unwrap_or_else(by_calls) as f64 / produced
        };
        (0..tiers).map(made).collect()
    }

    /// Messages that arrived, with their numbers.
    pub fn arrived(&self) -> impl Iterator<Item = (u64, &MessageRecord)> {
        self.records.iter().enumerate().map(|(n, record)| (n as u64, record)).filter(|(_, r)| r.has_arrived())
    }

    /// Messages per second that had their first attempt during the arrivals.
    pub fn first_attempts_per_second(&self) -> f64 {
        let until = self.load.arrive_for.as_millis() as u32;
        let count = self.records.iter().filter(|record| record.first_ms < until).count();
        count as f64 / self.load.arrive_for.as_secs_f64()
    }

    pub fn total_calls(&self) -> u64 {
        self.calls.iter().map(|calls| u64::from(*calls)).sum()
    }

    pub fn failed_calls(&self) -> u64 {
        self.failed.iter().map(|calls| u64::from(*calls)).sum()
    }

    /// Failed calls in a time span.
    pub fn failed_between(&self, from: Duration, to: Duration) -> u64 {
        let bucket = |at: Duration| at.as_millis() as usize / BUCKET_MS as usize;
        let end = bucket(to).min(self.failed.len());
        self.failed[bucket(from).min(end)..end].iter().map(|calls| u64::from(*calls)).sum()
    }

    /// Calls per second in each second of the run.
    pub fn calls_per_second(&self) -> Vec<(f64, f64)> {
        let each = (1000 / BUCKET_MS) as usize;
        let ran = self.ran_for.as_secs() as usize;
        let seconds = self.calls.chunks(each).take(ran.max(1)).enumerate();
        seconds.map(|(s, calls)| (s as f64, f64::from(calls.iter().sum::<u32>()))).collect()
    }

    /// Messages that have arrived but had no first attempt, over time, for one lane or all. This is what a consumer
    /// group shows as lag, because a message that waits for a retry has been consumed.
    pub fn lag(&self, lane: Option<u32>, step: Duration) -> Vec<(f64, f64)> {
        let step_ms = step.as_millis().max(1) as usize;
        let steps = self.ran_for.as_millis() as usize / step_ms + 1;
        let mut change = vec![0_i64; steps + 1];
        for (number, record) in self.arrived() {
            if lane.is_some_and(|lane| lane != self.load.lane(number)) {
                continue;
            }
            change[(record.arrived_ms as usize / step_ms).min(steps)] += 1;
            if record.has_started() {
                change[(record.first_ms as usize / step_ms).min(steps)] -= 1;
            }
        }
        cumulated(&change[..steps], step)
    }

    /// Letters since the beginning, over time.
    pub fn letters(&self, step: Duration) -> Vec<(f64, f64)> {
        let step_ms = step.as_millis().max(1) as usize;
        let steps = self.ran_for.as_millis() as usize / step_ms + 1;
        let mut change = vec![0_i64; steps + 1];
        for (_, record) in self.arrived().filter(|(_, record)| record.is_dead()) {
            change[(record.ended_ms as usize / step_ms).min(steps)] += 1;
        }
        cumulated(&change[..steps], step)
    }

    /// Open letters over time: deaths minus closed letters.
    pub fn open_letters(&self, step: Duration) -> Vec<(f64, f64)> {
        let step_ms = step.as_millis().max(1) as usize;
        let steps = self.ran_for.as_millis() as usize / step_ms + 1;
        let mut change = vec![0_i64; steps + 1];
        for (_, record) in self.arrived().filter(|(_, record)| record.is_dead()) {
            change[(record.ended_ms as usize / step_ms).min(steps)] += 1;
        }
        for at in &self.triaged_ms {
            change[(*at as usize / step_ms).min(steps)] -= 1;
        }
        cumulated(&change[..steps], step)
    }

    /// Dead letters per second between two times.
    pub fn deaths_per_second(&self, from: Duration, to: Duration) -> f64 {
        let span = from.as_millis() as u32..to.as_millis() as u32;
        let died = self.arrived().filter(|(_, r)| r.is_dead() && span.contains(&r.ended_ms)).count();
        died as f64 / (to.saturating_sub(from)).as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The share of all applied messages that were applied after a later one of the same key.
    pub fn out_of_order(&self) -> f64 {
        let mut earliest_after = vec![NEVER; self.load.keys.max(1) as usize];
        let (mut applied, mut passed) = (0_u64, 0_u64);
        for (number, record) in self.arrived().collect::<Vec<_>>().into_iter().rev() {
            if !record.has_succeeded() {
                continue;
            }
            let earliest = &mut earliest_after[self.load.key(number) as usize];
            applied += 1;
            passed += u64::from(*earliest < record.order);
            *earliest = (*earliest).min(record.order);
        }
        passed as f64 / applied.max(1) as f64
    }
}

fn cumulated(change: &[i64], step: Duration) -> Vec<(f64, f64)> {
    let mut sum = 0_i64;
    let at = |(i, change): (usize, &i64)| {
        sum += change;
        ((i + 1) as f64 * step.as_secs_f64(), sum as f64)
    };
    change.iter().enumerate().map(at).collect()
}

/// The quantile `share` of unsorted values; NaN if there are none.
pub fn quantile(values: impl IntoIterator<Item = u32>, share: f64) -> f64 {
    let mut all: Vec<u32> = values.into_iter().collect();
    all.sort_unstable();
    let index = (all.len() as f64 * share).ceil() as usize;
    all.get(index.saturating_sub(1)).map_or(f64::NAN, |value| f64::from(*value))
}

/// The mean; NaN if there are no values.
pub fn mean(values: impl IntoIterator<Item = u32>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0_u64), |(s, n), v| (s + f64::from(v), n + 1));
    if count == 0 { f64::NAN } else { sum / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::call_log::CallLog;
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn trace(load: Load, play: impl Fn(&Recorder)) -> Trace {
        let recorder = Recorder::new(load.messages(), load.ends());
        play(&recorder);
        let ran_for = load.ends();
        Trace::new(load, &recorder, EngineCounts::default(), &[], ran_for)
    }

    #[test]
    fn lag_counts_what_arrived_and_was_not_started() {
        let load = Load::steady(42, 2.0, at(2_000));
        let trace = trace(load, |recorder| {
            (0..4).for_each(|n| recorder.arrived(n, at(n * 500)));
            recorder.called(0, at(0));
            recorder.called(1, at(1_600));
        });
        let lag: Vec<f64> = trace.lag(None, at(500)).into_iter().map(|(_, lag)| lag).collect();
        assert_eq!(lag, [0.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(trace.audit.pending, 4);
    }

    #[test]
    fn a_message_is_out_of_order_if_a_later_one_of_its_key_was_applied_before() {
        let load = Load { keys: 2, ..Load::steady(42, 4.0, at(1_000)) };
        let trace = trace(load, |recorder| {
            for n in [2, 1, 0, 3] {
                recorder.arrived(n, at(0));
                recorder.called(n, at(0));
                recorder.succeeded(n, at(1));
            }
        });
        // Of key 0's messages 0 and 2, 2 was applied first; those of key 1, 1 and 3, were in order.
        assert!((trace.out_of_order() - 0.25).abs() < 1e-9);
    }

    /// A hook announced a letter and the engine counts it, but it was not stored.
    #[test]
    fn a_letter_that_is_announced_and_not_written_fails_the_audit() {
        let load = Load::steady(42, 2.0, at(1_000));
        let audited = |letters: &[u64]| {
            let recorder = Recorder::new(load.messages(), load.ends());
            for number in 0..2 {
                recorder.arrived(number, at(0));
                recorder.called(number, at(0));
            }
            recorder.succeeded(0, at(1));
            recorder.died(1, at(1));
            let engine = EngineCounts { accepted: 2, pending: 0, letters: 1 };
            Trace::new(load.clone(), &recorder, engine, letters, load.ends()).audit
        };
        assert!(audited(&[1]).balances(), "{}", audited(&[1]));
        assert!(!audited(&[]).balances(), "{}", audited(&[]));
        assert!(!audited(&[0]).balances(), "the count is right and the id is not: {}", audited(&[0]));
    }

    #[test]
    fn quantiles_and_means_are_of_what_is_there() {
        assert!((quantile([4, 1, 3, 2], 0.5) - 2.0).abs() < 1e-9);
        assert!((quantile([4, 1, 3, 2], 1.0) - 4.0).abs() < 1e-9);
        assert!(quantile([], 0.5).is_nan() && mean([]).is_nan());
        assert!((mean([1, 2]) - 1.5).abs() < 1e-9);
    }
}
