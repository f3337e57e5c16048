//! `[pipeline.breaker]` and `[pipeline.guard]`: when deliveries to a sink stop, and when a pipeline is paused.

use redrive_core::Ratio;
use redrive_core::breaker::{BreakerSettings, SlowAction};
use redrive_core::duration::print;
use redrive_core::failure_kind::{Counted, CountedError};
use redrive_core::guard::GuardSettings;
use redrive_core::profiles::Profile;

use super::fault::Fault;
use super::reader::{Section, Set, SettingReader};
use super::words::quoted;

pub(super) const ACTIONS: [(&str, SlowAction); 2] =
    [("open", SlowAction::Open), ("alert", SlowAction::Alert)];

pub(super) fn breaker(
    reader: &mut SettingReader,
    pipeline: &Section<'_>,
    profile: &Profile,
) -> BreakerSettings {
    let mut breaker = BreakerSettings::of_profile(profile);
    let Some(table) = reader.table(pipeline, "breaker") else { return breaker };
    reader.unknown_keys(&table);
    set(&mut breaker.enabled, reader.switch(&table, "enabled"));
    set(&mut breaker.cooldown, reader.duration(&table, "cooldown"));
    set(&mut breaker.cooldown_max, reader.duration(&table, "cooldown_max"));
    set_number(&mut breaker.probes, reader.whole(&table, "probes"));
    if let Some(times) = reader.number(&table, "reload") {
        match times.value {
            0.0 | 1.0..=100.0 => breaker.reload = Ratio::percent((times.value * 100.0).round() as u16),
            _ => reload_fault(reader, pipeline, &table),
        }
    }
    if let Some(fast) = reader.table(&table, "fast") {
        reader.unknown_keys(&fast);
        set(&mut breaker.fast.window, reader.duration(&fast, "window"));
        set(&mut breaker.fast.failures, reader.share(&fast, "failures"));
        set_number(&mut breaker.fast.min, reader.whole(&fast, "min"));
    }
    if let Some(slow) = reader.table(&table, "slow") {
        reader.unknown_keys(&slow);
        set(&mut breaker.slow.window, reader.duration(&slow, "window"));
        set(&mut breaker.slow.failures, reader.share(&slow, "failures"));
        set(&mut breaker.slow.action, reader.one_of(&slow, "action", &ACTIONS));
        if let Some(counts) = reader.texts(&slow, "counts") {
            let counts = counts.value.into_iter().filter_map(|count| counted(reader, pipeline, &count));
            breaker.slow.counts = counts.collect();
        }
    }
    if breaker.cooldown > breaker.cooldown_max {
        let problem = "`breaker.cooldown` is longer than `breaker.cooldown_max`";
        let at = [table.at("cooldown"), table.at("cooldown_max")].into_iter().flatten().collect();
        let fix = format!("breaker.cooldown_max = \"{}\"", print(breaker.cooldown));
        let fault = Fault::line("breaker.cooldown", problem, fix, at);
        reader.fault(pipeline, fault);
    }
    breaker
}

fn reload_fault(reader: &mut SettingReader, pipeline: &Section<'_>, table: &Section<'_>) {
    let problem = "`breaker.reload` is neither 0 (no limit) nor from 1 to 100; below 1 held messages would never be delivered";
    let at = table.at("reload").into_iter().collect();
    reader.fault(pipeline, Fault::line("breaker.reload", problem, "breaker.reload = 2.0", at));
}

pub(super) fn guard(reader: &mut SettingReader, pipeline: &Section<'_>) -> GuardSettings {
    let mut guard = GuardSettings::default();
    let Some(table) = reader.table(pipeline, "guard") else { return guard };
    reader.unknown_keys(&table);
    set(&mut guard.share, reader.share(&table, "share"));
    set(&mut guard.over, reader.duration(&table, "over"));
    set_number(&mut guard.times_baseline, reader.whole(&table, "times_baseline"));
    guard
}

/// A table below `[pipeline]`, with all effective values as TOML.
pub(super) type TableValues = (&'static str, Vec<(&'static str, String)>);

pub(super) fn breaker_values(breaker: &BreakerSettings) -> [TableValues; 3] {
    let counts: Vec<String> = breaker.slow.counts.iter().map(|count| quoted(&count.to_string())).collect();
    let action = ACTIONS.into_iter().find(|(_, action)| *action == breaker.slow.action);
    let of_breaker = vec![
        ("enabled", breaker.enabled.to_string()),
        ("cooldown", quoted(&print(breaker.cooldown))),
        ("cooldown_max", quoted(&print(breaker.cooldown_max))),
        ("probes", breaker.probes.to_string()),
        ("reload", format!("{:?}", breaker.reload.as_f64())),
    ];
    let fast = vec![
        ("window", quoted(&print(breaker.fast.window))),
        ("failures", quoted(&breaker.fast.failures.to_string())),
        ("min", breaker.fast.min.to_string()),
    ];
    let slow = vec![
        ("window", quoted(&print(breaker.slow.window))),
        ("failures", quoted(&breaker.slow.failures.to_string())),
        ("counts", format!("[{}]", counts.join(", "))),
        ("action", quoted(action.map_or("", |(name, _)| name))),
    ];
    [("breaker", of_breaker), ("breaker.fast", fast), ("breaker.slow", slow)]
}

pub(super) fn guard_values(guard: &GuardSettings) -> TableValues {
    let values = vec![
        ("share", quoted(&guard.share.to_string())),
        ("over", quoted(&print(guard.over))),
        ("times_baseline", guard.times_baseline.to_string()),
    ];
    ("guard", values)
}

fn counted(reader: &mut SettingReader, pipeline: &Section<'_>, text: &Set<String>) -> Option<Counted> {
    match text.value.parse() {
        Ok(counted) => Some(counted),
        Err(error) => {
            let error: CountedError = error;
            let fix = "breaker.slow.counts = [\"5xx\", \"timeout\", \"refused\"]";
            reader.fault(
                pipeline,
                Fault::value("breaker.slow.counts", error.to_string(), fix, text.at.clone()),
            );
            None
        }
    }
}

fn set<T>(into: &mut T, given: Option<Set<T>>) {
    if let Some(given) = given {
        *into = given.value;
    }
}

fn set_number(into: &mut u32, given: Option<Set<u64>>) {
    if let Some(given) = given {
        *into = given.value as u32;
    }
}
