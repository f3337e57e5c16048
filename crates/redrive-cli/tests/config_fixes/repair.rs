//! Applies a fix: parses the forms that a fix may have, and rejects anything else.

use std::ops::Range;

use redrive_cli::config::{At, Fault};

use super::document::{Document, join};

/// One change of a file. Keys are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Set(String, String),
    Replace(Range<usize>, String),
    Remove(String),
    Rename(String, String),
    All(Vec<Change>),
}

impl Change {
    pub fn applied(&self, document: &Document) -> Document {
        let mut changed = document.clone();
        match self {
            Self::Set(key, value) => changed.set(key, value),
            Self::Replace(span, with) => changed = document.replaced(span, with),
            Self::Remove(key) => {
                changed.remove(key);
            }
            Self::Rename(from, to) => changed.rename(from, to),
            Self::All(changes) => changes.iter().for_each(|change| changed = change.applied(&changed)),
        }
        changed
    }
}

/// The alternatives that a fault offers; the text of the fix if it is advice in words.
pub fn offers(fault: &Fault) -> Result<Vec<Change>, String> {
    let table = table_of(fault.part.as_deref());
    if fault.fix.is_empty() {
        return said_in_problem(fault, table).ok_or_else(|| fault.problem.clone());
    }
    let mut offers = Vec::new();
    for offer in fault.fix.split(", or ") {
        offers.extend(one_offer(fault, table, offer).ok_or_else(|| fault.fix.clone())?);
    }
    Ok(offers)
}

/// The key that a fault concerns.
pub fn key_of(fault: &Fault) -> String {
    join(table_of(fault.part.as_deref()), &fault.key)
}

fn table_of(part: Option<&str>) -> &'static str {
    let word = part.and_then(|part| part.split(' ').next()).unwrap_or_default();
    match word {
        "pipeline" => "pipeline",
        "token" => "server.token",
        "alert" => "alert",
        "engine" => "engine",
        "server" => "server",
        "" => "",
        other => panic!("which table is {other}?"),
    }
}

fn one_offer(fault: &Fault, table: &str, offer: &str) -> Option<Vec<Change>> {
    let key = key_of(fault);
    if let Some(words) = offer.strip_prefix("write it like ") {
        let words = words.split(", ").flat_map(|words| words.split(" or ")).map(str::trim);
        return Some(words.map(|word| in_place(fault, &key, &quoted(word))).collect());
    }
    if let Some(name) = offer.strip_prefix("remove `").and_then(|rest| rest.strip_suffix('`')) {
        return Some(vec![Change::Remove(join(table, name))]);
    }
    if let Some(rest) = offer.strip_prefix("keep `").and_then(|rest| rest.strip_suffix('`')) {
        let (one, other) = rest.split_once("` or `")?;
        let name = |setting: &str| join(table, setting.split(" = ").next().unwrap_or(setting));
        return Some(vec![Change::Remove(name(other)), Change::Remove(name(one))]);
    }
    if let Some(name) = offer.strip_prefix("rename it to `").and_then(|rest| rest.strip_suffix('`')) {
        return Some(vec![Change::Rename(key, join(table, name))]);
    }
    if let Some((settings, old)) = offer.split_once(" instead of `") {
        let mut changes = vec![Change::Remove(join(table, old.strip_suffix('`')?))];
        for setting in settings.split(" and ") {
            changes.extend(one_offer(fault, table, setting)?);
        }
        return Some(vec![Change::All(changes)]);
    }
    if let Some((path, setting)) = offer.strip_prefix("add [").and_then(|rest| rest.split_once("] with ")) {
        return one_offer(fault, path, setting);
    }
    let offer = offer.strip_prefix("add ").unwrap_or(offer);
    if offer.starts_with('"') && offer.ends_with('"') && !offer.contains(" = ") {
        return Some(vec![in_place(fault, &key, offer)]);
    }
    let (name, value) = offer.split_once(" = ")?;
    let is_value = value.starts_with(['"', '[', '{']) || value.parse::<f64>().is_ok();
    let is_value = is_value || ["true", "false"].contains(&value);
    (is_value && !name.contains([' ', '`'])).then(|| vec![Change::Set(join(table, name), value.to_owned())])
}

/// A change of the value itself, if the fault points at one; it may be an item of a list.
fn in_place(fault: &Fault, key: &str, value: &str) -> Change {
    match fault.at.first() {
        Some(At::File(span)) if span.len() > 1 => Change::Replace(span.clone(), value.to_owned()),
        _ => Change::Set(key.to_owned(), value.to_owned()),
    }
}

fn said_in_problem(fault: &Fault, table: &str) -> Option<Vec<Change>> {
    let key = key_of(fault);
    if let Some((_, rest)) = fault.problem.split_once("did you mean `") {
        let meant = rest.split('`').next()?;
        return Some(vec![Change::Rename(key, join(table, meant))]);
    }
    if let Some((_, rest)) = fault.problem.split_once(" belongs into [") {
        let other = rest.split(']').next()?;
        let name = fault.key.rsplit('.').next()?;
        return Some(vec![Change::Rename(key, join(other, name))]);
    }
    let unknown = fault.problem.starts_with("unknown key");
    unknown.then(|| vec![Change::Remove(key)])
}

fn quoted(word: &str) -> String {
    let bare = word.starts_with(['"', '[']) || ["true", "false"].contains(&word);
    if bare { word.to_owned() } else { format!("{word:?}") }
}
