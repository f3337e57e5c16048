//! `[pipeline.breaker]` and `[pipeline.guard]`: read and checked; nothing acts on them in this build.

use std::time::Duration;

use redrive_core::Ratio;

use super::fault::Fault;
use super::reader::{Reader, Section};

/// What closes a sink that fails too often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    pub enabled: bool,
    pub fast: FastWindow,
    pub slow: SlowWindow,
    pub cooldown: Duration,
    pub cooldown_max: Duration,
    pub probes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastWindow {
    pub window: Duration,
    pub failures: Ratio,
    pub min: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowWindow {
    pub window: Duration,
    pub failures: Ratio,
    /// Which failures count: `503`, `5xx`, `timeout`, `refused`.
    pub counts: Vec<String>,
    pub action: SlowAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowAction {
    Open,
    Alert,
}

/// Pauses a pipeline that suddenly dead-letters most of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    pub share: Ratio,
    pub over: Duration,
    pub times_baseline: u32,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            fast: FastWindow { window: Duration::from_secs(10), failures: Ratio::percent(50), min: 20 },
            slow: SlowWindow {
                window: Duration::from_mins(5),
                failures: Ratio::percent(20),
                counts: ["5xx", "timeout", "refused"].map(str::to_owned).to_vec(),
                action: SlowAction::Open,
            },
            cooldown: Duration::from_secs(30),
            cooldown_max: Duration::from_mins(5),
            probes: 5,
        }
    }
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self { share: Ratio::percent(50), over: Duration::from_mins(1), times_baseline: 10 }
    }
}

const NUMBER_MAX: u64 = 1_000_000;

impl BreakerConfig {
    pub(super) fn read(reader: &mut Reader, pipeline: &Section<'_>) -> Self {
        let mut breaker = Self::default();
        let Some(table) = reader.table(pipeline, "breaker") else { return breaker };
        reader.unknown_keys(&table);
        not_yet(reader, pipeline, "breaker", "this build has no breaker");
        set(&mut breaker.enabled, reader.switch(&table, "enabled"));
        set(&mut breaker.cooldown, reader.duration(&table, "cooldown"));
        set(&mut breaker.cooldown_max, reader.duration(&table, "cooldown_max"));
        set_number(&mut breaker.probes, reader.whole(&table, "probes", NUMBER_MAX));
        if let Some(fast) = reader.table(&table, "fast") {
            reader.unknown_keys(&fast);
            set(&mut breaker.fast.window, reader.duration(&fast, "window"));
            set(&mut breaker.fast.failures, reader.share(&fast, "failures"));
            set_number(&mut breaker.fast.min, reader.whole(&fast, "min", NUMBER_MAX));
        }
        if let Some(slow) = reader.table(&table, "slow") {
            reader.unknown_keys(&slow);
            set(&mut breaker.slow.window, reader.duration(&slow, "window"));
            set(&mut breaker.slow.failures, reader.share(&slow, "failures"));
            let actions = [("open", SlowAction::Open), ("alert", SlowAction::Alert)];
            set(&mut breaker.slow.action, reader.one_of(&slow, "action", &actions));
            if let Some(counts) = reader.texts(&slow, "counts") {
                breaker.slow.counts = counts.value.into_iter().map(|count| count.value).collect();
            }
        }
        if breaker.cooldown > breaker.cooldown_max {
            let problem = "`breaker.cooldown` is longer than `breaker.cooldown_max`";
            let at = [table.at("cooldown"), table.at("cooldown_max")].into_iter().flatten().collect();
            let fault = Fault::line("breaker.cooldown", problem, "make `cooldown_max` the longer one", at);
            reader.fault(pipeline, fault);
        }
        breaker
    }
}

impl GuardConfig {
    pub(super) fn read(reader: &mut Reader, pipeline: &Section<'_>) -> Self {
        let mut guard = Self::default();
        let Some(table) = reader.table(pipeline, "guard") else { return guard };
        reader.unknown_keys(&table);
        not_yet(reader, pipeline, "guard", "this build does not watch the rate of dead letters");
        set(&mut guard.share, reader.share(&table, "share"));
        set(&mut guard.over, reader.duration(&table, "over"));
        set_number(&mut guard.times_baseline, reader.whole(&table, "times_baseline", NUMBER_MAX));
        guard
    }
}

fn set<T>(into: &mut T, given: Option<super::reader::Set<T>>) {
    if let Some(given) = given {
        *into = given.value;
    }
}

fn set_number(into: &mut u32, given: Option<super::reader::Set<u64>>) {
    if let Some(given) = given {
        *into = given.value as u32;
    }
}

/// Somebody who sets a thing must not believe that it works.
fn not_yet(reader: &mut Reader, pipeline: &Section<'_>, key: &str, why: &str) {
    let at = pipeline.at(key).into_iter().collect();
    let fault = Fault::line(key, format!("`{key}` has no effect yet: {why}"), "", at).warning();
    reader.fault(pipeline, fault);
}
