//! The sink of a pipeline: which one it names, and the locations of its faults.

use std::collections::BTreeMap;

use redrive_sinks::SinkFault;

use super::super::engine::EngineKind;
use super::super::fault::Fault;
use super::super::reader::{Section, SettingReader};
use super::super::tree::At;
use super::super::words::in_table;
use super::kind::{SinkKind, SinkSettings};
use super::registry::{self, SINKS};

/// The only sink of a pipeline, with its table.
pub(in super::super) fn sink_section<'t>(
    reader: &mut SettingReader,
    section: &Section<'t>,
    at: &At,
) -> Option<(SinkKind, Section<'t>)> {
    let fix = "add [pipeline.sink.webhook] with url = \"http://127.0.0.1:8000/hook\"";
    let Some(sink) = reader.table(section, "sink") else {
        if section.get("sink").is_none() {
            let fault = Fault::line("sink", "it has no sink", fix, vec![at.clone()]);
            reader.fault(section, fault);
        }
        return None;
    };
    let sinks: Vec<_> = sink.table.entries.iter().collect();
    if sinks.len() > 1 {
        let names: Vec<String> = sinks.iter().map(|entry| format!("`{}`", entry.key)).collect();
        let problem = format!("it has {} sinks, {}; exactly one delivers", sinks.len(), names.join(" and "));
        let places = sinks.iter().map(|entry| entry.key_at.clone()).collect();
        let known = sinks.iter().all(|entry| registry::NAMES.contains(&entry.key.as_str()));
        let keep: Vec<String> = sinks.iter().map(|entry| format!("`sink.{}`", entry.key)).collect();
        let fix = if known { format!("keep {}", keep.join(" or ")) } else { String::new() };
        reader.fault(section, Fault::line("sink", problem, fix, places));
    }
    if !sinks.iter().all(|entry| registry::NAMES.contains(&entry.key.as_str())) {
        reader.unknown_keys(&sink);
    }
    if sinks.is_empty() {
        reader.fault(
            section,
            Fault::line("sink", "`sink` is empty", fix, section.at("sink").into_iter().collect()),
        );
    }
    let kind = SINKS.into_iter().find(|kind| sink.get(kind.name).is_some())?;
    reader.table(&sink, kind.name).map(|table| (kind, table))
}

/// Reports hashes that would differ: the members of a group share a table of subscriptions by hash, so all must compute
/// the same ones.
pub(in super::super) fn shared_hashes(
    reader: &mut SettingReader,
    section: &Section<'_>,
    kind: &str,
    sink: &dyn SinkSettings,
    engine: EngineKind,
) {
    let lacks_key = sink.subscriptions().is_some_and(|settings| !settings.has_hash_key);
    if engine == EngineKind::Kafka && lacks_key {
        let key = format!("sink.{kind}.hash_key_file");
        let problem =
            format!("`{key}` is missing: all members of the group must hash endpoints with one key");
        let fix = format!("openssl rand -hex 32 > hash.key, and {key} = \"/etc/redrive/hash.key\"");
        reader.fault(section, Fault::line(key, problem, fix, Vec::new()));
    }
}

/// Converts the sink's faults, each under its key and with the location where it was set.
pub(in super::super) fn sink_faults(
    faults: &[SinkFault],
    kind: &str,
    is_complete: bool,
    given: &BTreeMap<String, At>,
) -> Vec<Fault> {
    // The placeholder is not the user's value, and the missing value is already reported.
    let is_written =
        |fault: &&SinkFault| place(&fault.key, format!("sink.{kind}.{}", fault.key), given).1.is_some();
    let real = faults.iter().filter(|fault| is_complete || is_written(fault));
    real.map(|fault| sink_fault(fault, kind, given)).collect()
}

fn sink_fault(fault: &SinkFault, kind: &str, given: &BTreeMap<String, At>) -> Fault {
    let inside = |key: &str| format!("sink.{kind}.{key}");
    let (key, at) = place(&fault.key, inside(&fault.key), given);
    let problem = fault.problem.replace(&format!("`{}`", fault.key), &format!("`{key}`"));
    let fix = in_table(&fault.fix, |name| if name == fault.key { key.clone() } else { inside(name) });
    Fault::line(key, problem, fix, at.into_iter().collect())
}

fn place(key: &str, inside: String, given: &BTreeMap<String, At>) -> (String, Option<At>) {
    let of_file = format!("{inside}_file");
    // Header names are in lower case by now; a time limit may be in the sink or in the pipeline.
    let found = given.iter().find(|(name, _)| {
        name.eq_ignore_ascii_case(&inside)
            || name.eq_ignore_ascii_case(&of_file)
            || (key == "timeout" && *name == key)
    });
    match found {
        Some((name, at)) => (name.clone(), Some(at.clone())),
        None => (inside, None),
    }
}
