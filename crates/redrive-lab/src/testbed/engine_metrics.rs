//! Lag and stall as the engine reports them during a run: the values behind `redrive_lag`,
//! `redrive_stall_oldest_seconds` and `redrive_stall_seconds`.

use std::time::Duration;

use redrive::PipelineHandle;

/// The metrics at one moment of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineSample {
    pub at: Duration,
    /// `redrive_lag` of every partition of the source. The embedded engine has no partitions: each lane is a separate
    /// pipeline there, and this is its lag.
    pub lag: Vec<u64>,
    /// `redrive_stall_oldest_seconds`, likewise: how long the oldest message without a first attempt has waited.
    pub stalled_ms: Vec<u64>,
    /// `redrive_stall_seconds` of all pipelines: the number of messages that have had their first attempt, and their
    /// total wait for it.
    pub started: u64,
    pub waited_ms: u64,
}

impl EngineSample {
    pub(super) fn read(at: Duration, handles: &[PipelineHandle]) -> Self {
        let mut sample = Self { at, ..Self::default() };
        for handle in handles {
            let figures = handle.figures();
            sample.started += figures.stall.count();
            sample.waited_ms += (figures.stall.sum() * 1000.0) as u64;
            if figures.condition.cluster.is_none() {
                sample.lag.push(figures.pending.ready);
                sample.stalled_ms.push(milliseconds(figures.stalled_for));
            }
            for flow in figures.condition.flows.iter().filter(|flow| *flow.topic == *handle.name()) {
                sample.lag.push(flow.lag.unwrap_or(0));
                sample.stalled_ms.push(milliseconds(flow.stalled_for));
            }
        }
        sample
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Lag of one partition over seconds.
pub fn lag(samples: &[EngineSample], partition: usize) -> Vec<(f64, f64)> {
    let point = |sample: &EngineSample| {
        let lag = sample.lag.get(partition)?;
        Some((sample.at.as_secs_f64(), *lag as f64))
    };
    samples.iter().filter_map(point).collect()
}

/// Wait of the oldest message without a first attempt in one partition, over seconds.
pub fn oldest(samples: &[EngineSample], partition: usize) -> Vec<(f64, f64)> {
    let point = |sample: &EngineSample| {
        let waited_ms = sample.stalled_ms.get(partition)?;
        Some((sample.at.as_secs_f64(), *waited_ms as f64 / 1_000.0))
    };
    samples.iter().filter_map(point).collect()
}

/// Mean wait, in milliseconds, of messages that had their first attempt since the previous sample, over seconds.
/// Skips samples without any; messages that still wait have no stall yet.
pub fn stall(samples: &[EngineSample]) -> Vec<(f64, f64)> {
    let mean = |pair: &[EngineSample]| {
        let started = pair[1].started.saturating_sub(pair[0].started);
        let waited = pair[1].waited_ms.saturating_sub(pair[0].waited_ms);
        (started > 0).then(|| (pair[1].at.as_secs_f64(), waited as f64 / started as f64))
    };
    samples.windows(2).filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_the_mean_of_what_started_between_two_samples() {
        let sample = |s, started, waited_ms| EngineSample {
            at: Duration::from_secs(s),
            lag: vec![started, 7],
            stalled_ms: vec![waited_ms],
            started,
            waited_ms,
        };
        let samples = [sample(0, 0, 0), sample(1, 10, 50), sample(2, 10, 50), sample(3, 12, 1_050)];
        assert_eq!(stall(&samples), [(1.0, 5.0), (3.0, 500.0)]);
        assert_eq!(lag(&samples, 0)[3], (3.0, 12.0));
        assert!(lag(&samples, 2).is_empty());
        assert_eq!(oldest(&samples, 0)[3], (3.0, 1.05));
    }
}
