//! Values in the words of the configuration, without possible secrets.

use std::fmt::Write as _;

use redrive::{AfterDead, DeliveryOrder};
use redrive_core::Schedule;
use redrive_core::duration::print;
use redrive_core::printable;

/// An address without possible secrets: credentials and the query.
pub fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => authority.to_owned(),
    };
    let path = match path.find(['?', '#']) {
        Some(query) => format!("{}…", &path[..=query]),
        None => path.to_owned(),
    };
    format!("{scheme}://{authority}{path}")
}

/// An address without its path too: for chat services the path alone allows posting.
pub(super) fn without_path(url: &str) -> String {
    let shown = without_secrets(url);
    let (scheme, rest) = shown.split_once("://").unwrap_or(("", &shown));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.len() == rest.len() { shown } else { format!("{scheme}://{host}/…") }
}

pub(super) const ORDERINGS: [(&str, DeliveryOrder); 2] = [
    (ordering_name(DeliveryOrder::None), DeliveryOrder::None),
    (ordering_name(DeliveryOrder::Key), DeliveryOrder::Key),
];

pub(super) const AFTER_DEAD: [(&str, AfterDead); 2] = [
    (after_dead_name(AfterDead::Continue), AfterDead::Continue),
    (after_dead_name(AfterDead::BlockKey), AfterDead::BlockKey),
];

pub const fn ordering_name(ordering: DeliveryOrder) -> &'static str {
    match ordering {
        DeliveryOrder::None => "none",
        DeliveryOrder::Key => "key",
    }
}

pub const fn after_dead_name(after_dead: AfterDead) -> &'static str {
    match after_dead {
        AfterDead::Continue => "continue",
        AfterDead::BlockKey => "block_key",
    }
}

/// The schedule in a few words: `tiers 5s,30s,5m`.
pub fn schedule_words(schedule: &Schedule) -> String {
    match schedule {
        Schedule::Tiers(tiers) => {
            let tiers: Vec<String> = tiers.iter().map(|tier| print(*tier)).collect();
            format!("tiers {}", tiers.join(","))
        }
        Schedule::Exponential { base, multiplier, cap } => {
            let cap = cap.map(|cap| format!(" ≤ {}", print(cap))).unwrap_or_default();
            format!("backoff {} × {multiplier}{cap}", print(*base))
        }
        Schedule::Fixed(delay) => format!("backoff {}", print(*delay)),
        Schedule::Custom(_) => "a custom schedule".to_owned(),
    }
}

/// A TOML string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if printable::is_unsafe(c) => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Rewrites a fix of the sink in the words of the file, with the settings' names there.
pub(super) fn in_table(fix: &str, name_of: impl Fn(&str) -> String) -> String {
    let offers = fix.split(", or ").map(|offer| {
        for verb in ["remove", "rename it to"] {
            let name = offer.strip_prefix(verb).and_then(|rest| rest.strip_prefix(" `")?.strip_suffix('`'));
            if let Some(name) = name {
                return format!("{verb} `{}`", name_of(name));
            }
        }
        match offer.split_once(" = ") {
            Some((name, value)) => format!("{} = {value}", name_of(name)),
            None => offer.to_owned(),
        }
    });
    offers.collect::<Vec<_>>().join(", or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_their_secrets() {
        for (url, shown) in [
            ("http://127.0.0.1:8000/hook", "http://127.0.0.1:8000/hook"),
            ("https://user:hunter2@example.com/a", "https://…@example.com/a"),
            ("https://example.com/a?token=hunter2", "https://example.com/a?…"),
            ("https://example.com?hunter2", "https://example.com?…"),
            ("https://a@b@example.com", "https://…@example.com"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn the_path_of_a_chat_service_is_a_secret() {
        for (url, shown) in [
            ("https://chat.example.com/hooks/T0/B0/hunter2", "https://chat.example.com/…"),
            ("https://u:p@chat.example.com/hunter2?a=hunter2#hunter2", "https://…@chat.example.com/…"),
            ("https://chat.example.com?hunter2", "https://chat.example.com/…"),
            ("https://chat.example.com:8443", "https://chat.example.com:8443"),
        ] {
            assert_eq!(without_path(url), shown);
        }
    }

    #[test]
    fn texts_are_quoted_so_that_they_are_read_back() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\U0000000A\"");
    }
}
