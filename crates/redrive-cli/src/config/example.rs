//! What to write for a key, as the default file shows it: the fix of a value that cannot be read.

use redrive_core::{Ratio, duration};

use super::default;
use super::tree::Data;

/// `name = value` as the default file shows it for the key at `path`, with or without dots; for a table its first key.
pub(super) fn example(path: &str, name: &str) -> Option<String> {
    let settings = default::settings();
    let own = settings.iter().find(|setting| format!("{}.{}", setting.table, setting.key) == path);
    if let Some(own) = own {
        return Some(format!("{name} = {}", own.value));
    }
    let first = settings.iter().find(|setting| {
        setting.table == path || setting.table.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
    })?;
    let below = first.table.strip_prefix(path)?;
    Some(format!("{name}{below}.{} = {}", first.key, first.value))
}

/// A number in quotes, with the unit that the default file shows for the key: `"30s"` for 30, `"20%"` for 20.
pub(super) fn with_unit(table: &str, key: &str, data: &Data) -> Option<String> {
    let settings = default::settings();
    let shown = settings.iter().find(|setting| setting.table == table && setting.key == key)?;
    let shown = shown.value.trim_start_matches('[').split('"').nth(1)?;
    let (is_span, is_share) = (duration::parse(shown).is_ok(), shown.parse::<Ratio>().is_ok());
    match data {
        // Beyond that it was hardly meant in seconds.
        Data::Whole(number) if is_span && (1..=300).contains(number) => Some(format!("\"{number}s\"")),
        Data::Whole(number) if is_share && (1..=100).contains(number) => Some(format!("\"{number}%\"")),
        Data::Number(part) if is_share && *part > 0.0 => {
            Ratio::of_one(*part).map(|share| format!("\"{share}\""))
        }
        _ => None,
    }
}

/// `"off"` for a key that the default file says can be switched off so.
pub(super) fn off(table: &str, key: &str) -> Option<String> {
    let settings = default::settings();
    let shown = settings.iter().find(|setting| setting.table == table && setting.key == key)?;
    shown.about.contains("or \"off\"").then(|| "\"off\"".to_owned())
}
