//! `classes` of a webhook: what an answer means, over the class table.

use redrive_core::nearest::nearest;

use super::super::fault::Fault;
use super::super::reader::{Reader, Section};
use super::super::tree::Data;

/// What can stand on the left side besides a status: a preset for the whole table, and what happens without an answer.
const CASES: [&str; 8] = ["preset", "timeout", "refused", "dns", "tls", "reset", "blocked", "credential"];
const PRESETS: [&str; 2] = ["webhook", "seed-strict"];
/// The right side. That a process died (`crash`) is not for an answer to say.
const MEANINGS: [&str; 7] =
    ["ok", "transient", "rate_limited", "permanent", "gone", "credential", "reconnect"];

pub(super) fn read(reader: &mut Reader, section: &Section<'_>) -> Vec<(String, String)> {
    let Some(table) = reader.table(section, "classes") else { return Vec::new() };
    let mut classes = Vec::new();
    for entry in &table.table.entries {
        let full = table.name(&entry.key);
        let known = CASES.contains(&entry.key.as_str()) || is_status(&entry.key);
        if !known {
            let problem =
                format!("`{full}` is not a status; write \"404\", \"5xx\" or one of {}", CASES.join(", "));
            let fix = format!("remove `{full}`");
            reader.fault(section, Fault::line(&full, problem, fix, vec![entry.key_at.clone()]));
            continue;
        }
        let (words, usual) =
            if entry.key == "preset" { (&PRESETS[..], PRESETS[0]) } else { (&MEANINGS[..], "transient") };
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

/// `404`, or `5xx` for a hundred of them.
fn is_status(text: &str) -> bool {
    match text.as_bytes() {
        [b'1'..=b'5', b'x', b'x'] => true,
        [b'1'..=b'5', rest @ ..] => rest.len() == 2 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_or_a_hundred_of_them_can_be_named() {
        assert!(is_status("404") && is_status("5xx"));
        for wrong in ["", "xx", "6xx", "0xx", "99", "600", "+404", "4 04", "05xx", "timeout"] {
            assert!(!is_status(wrong), "{wrong}");
        }
    }
}
