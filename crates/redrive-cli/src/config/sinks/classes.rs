//! `classes` of a webhook: overrides of the class table for answers.

use redrive_core::nearest::nearest;
use redrive_sinks::webhook::{Case, ClassTable, Meaning, Trouble};

use super::super::fault::Fault;
use super::super::reader::{Section, SettingReader};
use super::super::tree::Data;

const PRESET: &str = "preset";

pub(super) fn read(reader: &mut SettingReader, section: &Section<'_>) -> Vec<(String, String)> {
    let Some(table) = reader.table(section, "classes") else { return Vec::new() };
    let mut classes = Vec::new();
    for entry in &table.table.entries {
        let full = table.name(&entry.key);
        if entry.key != PRESET && Case::from_name(&entry.key).is_none() {
            let words = [PRESET].into_iter().chain(Trouble::ALL.map(Trouble::name));
            let fix = match nearest(&entry.key, words.clone()) {
                Some(near) => format!("rename it to `{}`", table.name(near)),
                None => format!("remove `{full}`"),
            };
            let words = words.collect::<Vec<_>>().join(", ");
            let problem = format!("`{full}` is not a status (\"404\", \"5xx\") or one of {words}");
            reader.fault(section, Fault::line(&full, problem, fix, vec![entry.key_at.clone()]));
            continue;
        }
        let (words, usual) = if entry.key == PRESET {
            (&ClassTable::PRESETS[..], ClassTable::PRESETS[0])
        } else {
            (&Meaning::NAMES[..], "transient")
        };
        let (problem, meant) = match &entry.node.data {
            Data::Text(word) if words.contains(&word.as_str()) => {
                classes.push((entry.key.clone(), word.clone()));
                continue;
            }
            Data::Text(word) => (
                format!("`{full} = \"{word}\"` is not one of {}", words.join(", ")),
                nearest(word, words.iter().copied()).unwrap_or(usual),
            ),
            _ => (format!("`{full}` must be a text in quotes, not {}", entry.node.kind()), usual),
        };
        let fix = format!("{full} = \"{meant}\"");
        reader.fault(section, Fault::line(&full, problem, fix, vec![entry.node.at.clone()]));
    }
    classes
}
