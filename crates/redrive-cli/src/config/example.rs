//! An example of a key as in the default file: the fix for a value that cannot be read.

use std::time::Duration;

use redrive_core::{Ratio, duration};

use super::declared::Form;
use super::keys::Keys;
use super::tree::Data;

/// `name = value` as in the default file, for the key at `path`; `name` may be dotted. For a table, its first key.
pub(super) fn example(keys: &Keys, path: &str, name: &str) -> Option<String> {
    if let Some(own) = path.rsplit_once('.').and_then(|(table, key)| keys.setting(table, key)) {
        return Some(format!("{name} = {}", own.shown.toml()));
    }
    let first = keys.declared().iter().find(|table| {
        table.path == path || table.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
    })?;
    let (below, setting) = (first.path.strip_prefix(path)?, first.settings.first()?);
    Some(format!("{name}{below}.{} = {}", setting.key, setting.shown.toml()))
}

/// Adds to a number the unit that the key expects: `"30s"` for 30, `"20%"` for 20.
pub(super) fn with_unit(keys: &Keys, table: &str, key: &str, data: &Data) -> Option<String> {
    let setting = keys.setting(table, key)?;
    let shown = setting.shown.toml();
    let shown = shown.trim_start_matches('[').split('"').nth(1)?;
    let (is_span, is_share) = (duration::parse(shown).is_ok(), shown.parse::<Ratio>().is_ok());
    match data {
        // A larger number was hardly meant as seconds.
        Data::Whole(number) if is_span && (1..=300).contains(number) => {
            let meant = Duration::from_secs(number.unsigned_abs());
            let is_accepted = setting.form.span().is_none_or(|(min, max)| (min..=max).contains(&meant));
            is_accepted.then(|| format!("\"{number}s\""))
        }
        Data::Whole(number) if is_share && (1..=100).contains(number) => Some(format!("\"{number}%\"")),
        Data::Number(part) if is_share && *part > 0.0 => {
            Ratio::of_one(*part).map(|share| format!("\"{share}\""))
        }
        _ => None,
    }
}

/// `"off"` for a key that accepts it.
pub(super) fn off(keys: &Keys, table: &str, key: &str) -> Option<String> {
    match keys.setting(table, key)?.form {
        Form::SpanOr(_, _, word) => Some(format!("\"{word}\"")),
        _ => None,
    }
}
