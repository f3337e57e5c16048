//! The policy of a pipeline: reads the settings, lets redrive-core validate them, and adds locations to its faults.

use redrive_core::policy::{
    BackoffSettings, BudgetSettings, CrashSettings, Given, SCALARS, ScalarKind, ScalarValue,
};
use redrive_core::{Policy, PolicyFault, PolicySettings, PolicyWarning, duration};
use redrive_sinks::webhook::options::TIMEOUT_MAX;

use super::fault::{Fault, Form};
use super::reader::{Section, Set, SettingReader};
use super::tree::{At, Data, TreeTable};

/// Settings of the policy that may be in the sink's table instead.
pub(super) const ALSO_IN_SINK: [&str; 2] = ["timeout", "concurrency"];

/// Reads the settings of the policy, and the policy if they have no faults. `sink` is the table of the sink, which may
/// set `timeout` and `concurrency` instead of the pipeline.
pub(super) fn read(
    reader: &mut SettingReader,
    section: &Section<'_>,
    sink: Option<&Section<'_>>,
) -> (PolicySettings, Option<Policy>) {
    let found = reader.faults.len();
    let settings = settings(reader, section, sink);
    // A value that could not be read counts as missing, so the validator's faults may be wrong.
    let unread: Vec<String> = reader.faults[found..]
        .iter()
        .filter(|fault| fault.form == Form::Value)
        .map(|f| f.key.clone())
        .collect();
    match settings.resolve() {
        Ok(policy) => {
            // The default window and the default tiers are equally long, and the attempt limit ends a crash loop
            // anyway: warn here only about a window that the user chose. `check` warns always.
            let applies = |warning: &&PolicyWarning| match warning {
                PolicyWarning::DelayPassesCrashWindow { .. } => settings.crash.window.is_some(),
                _ => true,
            };
            for warning in policy.warnings().iter().filter(applies) {
                let fault = Fault::line("", warning.to_string(), "", Vec::new()).warning();
                reader.fault(section, fault);
            }
            (settings, Some(policy))
        }
        Err(faults) => {
            for fault in faults.0 {
                if !unread.contains(&fault.key) {
                    let fault = placed(section, sink, fault);
                    reader.fault(section, fault);
                }
            }
            (settings, None)
        }
    }
}

fn settings(reader: &mut SettingReader, section: &Section<'_>, sink: Option<&Section<'_>>) -> PolicySettings {
    let tiers = reader.texts(section, "tiers");
    let tiers = tiers.map(|list| list.value.into_iter().map(|tier| tier.value.into()).collect());
    let (timeout, concurrency) = limits(reader, section, sink);
    let mut settings = PolicySettings {
        profile: reader.text(section, "profile").map(|set| set.value),
        tiers,
        backoff: backoff(reader, section),
        retries: reader.count(section, "retries"),
        attempts: reader.count(section, "attempts"),
        attempts_for: attempts_for(reader, section),
        classify: classify(reader, section),
        concurrency,
        timeout,
        budget: budget(reader, section),
        crash: crash(reader, section),
        ..PolicySettings::default()
    };
    let read_above = |key: &str| key == "classify" || ALSO_IN_SINK.contains(&key);
    for scalar in SCALARS.iter().filter(|scalar| !read_above(scalar.key)) {
        let value = match scalar.kind {
            ScalarKind::Words => reader.text(section, scalar.key).map(|set| ScalarValue::Words(set.value)),
            ScalarKind::Whole => reader.count(section, scalar.key).map(ScalarValue::Whole),
            ScalarKind::Number => {
                reader.number(section, scalar.key).map(|set| ScalarValue::Number(set.value))
            }
            ScalarKind::Switch => {
                reader.switch(section, scalar.key).map(|set| ScalarValue::Switch(set.value))
            }
        };
        if let Some(value) = value {
            (scalar.set)(&mut settings, value);
        }
    }
    settings
}

fn backoff(reader: &mut SettingReader, section: &Section<'_>) -> Option<BackoffSettings> {
    let table = reader.table(section, "backoff")?;
    reader.unknown_keys(&table);
    Some(BackoffSettings {
        base: reader.text(&table, "base").map(|set| set.value.into()),
        multiplier: reader.number(&table, "multiplier").map(|set| set.value),
        cap: reader.text(&table, "cap").map(|set| set.value.into()),
        fixed: reader.text(&table, "fixed").map(|set| set.value.into()),
    })
}

fn attempts_for(reader: &mut SettingReader, section: &Section<'_>) -> Vec<(Given<redrive_core::Class>, u32)> {
    let Some(table) = reader.table(section, "attempts_for") else { return Vec::new() };
    let classes: Vec<String> = table.table.entries.iter().map(|entry| entry.key.clone()).collect();
    let read = |class: String| {
        // An unknown class is the fault to report, whatever its number.
        let known = redrive_core::Class::from_name(&class).is_some();
        let attempts = if known { reader.count(&table, &class)? } else { 1 };
        Some((Given::Words(class), attempts))
    };
    classes.into_iter().filter_map(read).collect()
}

fn budget(reader: &mut SettingReader, section: &Section<'_>) -> BudgetSettings {
    let Some(table) = reader.table(section, "budget") else { return BudgetSettings::default() };
    reader.unknown_keys(&table);
    BudgetSettings {
        retries_per_minute: reader.count(&table, "retries_per_minute"),
        share_of_successes: reader.text(&table, "share_of_successes").map(|set| set.value.into()),
        on_exhausted: reader.text(&table, "on_exhausted").map(|set| set.value.into()),
    }
}

fn crash(reader: &mut SettingReader, section: &Section<'_>) -> CrashSettings {
    let Some(table) = reader.table(section, "crash") else { return CrashSettings::default() };
    reader.unknown_keys(&table);
    CrashSettings {
        threshold: reader.count(&table, "threshold"),
        window: reader.text(&table, "window").map(|set| set.value.into()),
    }
}

/// Reads `"on"`, `"off"` and common alternatives.
fn classify(reader: &mut SettingReader, section: &Section<'_>) -> Option<Given<bool>> {
    match section.get("classify")?.node.data {
        Data::Switch(on) => Some(on.into()),
        _ => reader.text(section, "classify").map(|set| set.value.into()),
    }
}

/// Timeout and concurrency may be in the pipeline or in its sink, but not in both.
fn limits(
    reader: &mut SettingReader,
    section: &Section<'_>,
    sink: Option<&Section<'_>>,
) -> (Option<Given<std::time::Duration>>, Option<u32>) {
    for key in ALSO_IN_SINK {
        let places = [section.at(key), sink.and_then(|sink| sink.at(key))];
        if let [Some(own), Some(of_sink)] = places {
            let in_sink = sink.map(|sink| sink.name(key)).unwrap_or_default();
            let problem = format!("both `{key}` and `{in_sink}` are set, and they mean the same thing");
            let fix = format!("keep `{key}` or `{in_sink}`");
            let fault = Fault::line(key, problem, fix, vec![own, of_sink]);
            reader.fault(section, fault);
        }
    }
    let place = |key: &str| match sink {
        Some(sink) if sink.get(key).is_some() && section.get(key).is_none() => sink.clone(),
        _ => section.clone(),
    };
    let timeout_in = place("timeout");
    let timeout = reader.text(&timeout_in, "timeout");
    let timeout = timeout.and_then(|set| within_sink_limit(reader, &timeout_in, set)).map(Into::into);
    (timeout, reader.count(&place("concurrency"), "concurrency"))
}

/// Limits a timeout to what a webhook supports; the policy alone would allow more.
fn within_sink_limit(
    reader: &mut SettingReader,
    section: &Section<'_>,
    timeout: Set<String>,
) -> Option<String> {
    if duration::parse(&timeout.value).is_ok_and(|given| given > TIMEOUT_MAX) {
        let (name, max) = (section.name("timeout"), duration::print(TIMEOUT_MAX));
        let problem = format!("`{name} = \"{}\"` must be at most {max}", timeout.value);
        let fix = format!("{name} = \"{max}\"");
        reader.fault(section, Fault::value(name, problem, fix, timeout.at));
        return None;
    }
    Some(timeout.value)
}

/// Converts a fault of the validator, with the location of its key.
fn placed(section: &Section<'_>, sink: Option<&Section<'_>>, fault: PolicyFault) -> Fault {
    let PolicyFault { key, problem, fix, item, .. } = fault;
    let table = section.table;
    let in_sink = || sink.and_then(|sink| Some((find(sink.table, &key, item)?, sink.name(&key))));
    let in_sink = find(table, &key, item).is_none().then(in_sink).flatten();
    if let Some((at, name)) = in_sink {
        let problem = problem.replacen(&key, &name, 1);
        let fix = match section.example(&name).filter(|_| fix.starts_with("write it like")) {
            Some(example) => example,
            None => fix.replacen(&key, &name, 1),
        };
        return Fault::value(name, problem, fix, at);
    }
    let at = find(table, &key, item);
    // A fault in a relation names all its settings; show each location.
    if problem.starts_with("both ") {
        let mut places: Vec<At> = at.into_iter().collect();
        for other in named(&problem).filter(|name| *name != key) {
            places.extend(find(table, other, None));
        }
        return Fault::line(key, problem, fix, places);
    }
    let Some(at) = at else {
        // Nothing was given under this key: the fault is in a missing setting, or in a relation.
        let parent = key.split('.').next().and_then(|parent| find(table, parent, None));
        return Fault::line(key, problem, fix, parent.into_iter().collect());
    };
    // If words are expected, list them under the value and use an example as the fix. A list item has no example.
    if let (true, None, Some(example)) = (fix.starts_with("write it like"), item, section.example(&key)) {
        return Fault::value(key, problem, example, at).note(fix);
    }
    match problem.split_once(": ") {
        Some((problem, note)) => Fault::value(key, problem, fix, at).note(note),
        None => Fault::value(key, problem, fix, at),
    }
}

/// The location of a value under a dotted key; of one item, if the value is a list.
fn find(table: &TreeTable, key: &str, item: Option<usize>) -> Option<At> {
    let (first, rest) = match key.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (key, None),
    };
    let node = &table.get(first)?.node;
    match (&node.data, rest) {
        (Data::Table(below), Some(rest)) => find(below, rest, item),
        (_, Some(_)) => None,
        (Data::List(items), None) => {
            let item = item.and_then(|item| items.get(item));
            Some(item.map_or_else(|| node.at.clone(), |item| item.at.clone()))
        }
        (_, None) => Some(node.at.clone()),
    }
}

/// The keys in backticks in a text: `retries` in "`retries = 5`".
fn named(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.map(|name| name.split(" = ").next().unwrap_or(name))
}
