//! The differences that an edit makes in one message, value by value.

use std::collections::BTreeMap;

use redrive_core::Message;

use super::json_text::{JsonText, Pointer};

/// Values compared in one payload; beyond that the payload is reported as one difference.
const LEAVES_MAX: usize = 10_000;
/// The most differences that are listed.
const LISTED_MAX: usize = 100;
/// Longer values are cut off.
const VALUE_CHARS_MAX: usize = 500;

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// A JSON pointer, `header NAME`, `payload` or `id`.
    pub at: String,
    /// The name of the field, if it is a field of the outermost object.
    pub field: Option<String>,
    /// The old text; `None` if there was no value.
    pub before: Option<String>,
    /// The new text; `None` if there is no value.
    pub after: Option<String>,
}

/// The differences between two versions of a message, at most a hundred values.
pub fn differences(before: &Message, after: &Message) -> Vec<Difference> {
    let mut all = Vec::new();
    if before.id() != after.id() {
        all.push(difference("id", None, Some(before.id()), Some(after.id())));
    }
    if before.payload() != after.payload() {
        all.extend(payloads(before, after));
    }
    let headers = |message: &Message| -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in message.headers() {
            let value = String::from_utf8_lossy(value).into_owned();
            found.entry(name.to_ascii_lowercase()).or_default().push(value);
        }
        found
    };
    let (old, new) = (headers(before), headers(after));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
        let text = |values: Option<&Vec<String>>| values.map(|values| values.join(", "));
        let (old, new) = (text(old.get(name)), text(new.get(name)));
        all.push(difference(&format!("header {name}"), None, old.as_deref(), new.as_deref()));
    }
    all.truncate(LISTED_MAX);
    all
}

fn payloads(before: &Message, after: &Message) -> Vec<Difference> {
    let json = |message: &Message| JsonText::parse(message.payload().unwrap_or_default()).ok();
    let whole =
        |message: &Message| message.payload().map(|payload| String::from_utf8_lossy(payload).into_owned());
    if let (Some(old), Some(new)) = (json(before), json(after)) {
        let (old, new) = (old.leaves(LEAVES_MAX), new.leaves(LEAVES_MAX));
        if old.len() < LEAVES_MAX && new.len() < LEAVES_MAX {
            let of = |leaves: Vec<(Pointer, &str)>| -> BTreeMap<String, (Option<String>, String)> {
                let leaf = |(pointer, text): (Pointer, &str)| {
                    (pointer.to_string(), (pointer.only().map(str::to_owned), text.to_owned()))
                };
                leaves.into_iter().map(leaf).collect()
            };
            let (old, new) = (of(old), of(new));
            let places: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let changed = places.into_iter().filter_map(|at| {
                let (was, is) = (old.get(at), new.get(at));
                let text = |leaf: Option<&(Option<String>, String)>| leaf.map(|(_, text)| text.clone());
                let field = is.or(was).and_then(|(field, _)| field.as_deref());
                (text(was) != text(is))
                    .then(|| difference(at, field, text(was).as_deref(), text(is).as_deref()))
            });
            let changed: Vec<Difference> = changed.collect();
            // Otherwise only the whitespace between values differs.
            if !changed.is_empty() {
                return changed;
            }
        }
    }
    vec![difference("payload", None, whole(before).as_deref(), whole(after).as_deref())]
}

fn difference(at: &str, field: Option<&str>, before: Option<&str>, after: Option<&str>) -> Difference {
    let cut = |text: &str| match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    let (at, field) = (if at.is_empty() { "payload" } else { at }.to_owned(), field.map(str::to_owned));
    Difference { at, field, before: before.map(cut), after: after.map(cut) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &str, header: &str) -> Message {
        Message::builder("o-1")
            .payload(payload.to_owned())
            .header("X-Src", header.to_owned())
            .build()
            .unwrap()
    }

    fn shown(before: &Message, after: &Message) -> Vec<String> {
        let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let all = differences(before, after);
        all.into_iter().map(|d| format!("{} {} {}", d.at, text(d.before), text(d.after))).collect()
    }

    #[test]
    fn only_values_that_differ_are_listed() {
        let before = message(r#"{"id":1,"currency":"eur","lines":[{"n":1}],"old":true}"#, "web");
        let after = message(r#"{"id": 1, "currency":"EUR","lines":[{"n":2}],"new":{}}"#, "app");
        assert_eq!(
            shown(&before, &after),
            [
                "/currency \"eur\" \"EUR\"",
                "/lines/0/n 1 2",
                "/new - {}",
                "/old true -",
                "header x-src web app"
            ]
        );
        assert_eq!(differences(&before, &after)[0].field.as_deref(), Some("currency"));
        assert!(differences(&before, &before).is_empty());
    }

    #[test]
    fn what_is_not_json_differs_as_a_whole_and_long_values_are_cut() {
        assert_eq!(shown(&message("plain", "a"), &message("better", "a")), ["payload plain better"]);
        let long = shown(&message("plain", "a"), &message(&"x".repeat(9_000), "a"));
        assert!(long[0].ends_with("x…") && long[0].len() < 600);
    }
}
