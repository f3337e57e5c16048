//! Removes from an error text what differs from message to message. Linear in the text, and bounded.

use super::words::{self, Word};
use super::{TITLE_BYTES_MAX, cut};
use crate::text::printable::is_unsafe;

/// Text beyond this is ignored.
pub(super) const TEXT_BYTES_MAX: usize = 2_048;
/// A quoted text longer than this is not treated as quoted.
const QUOTED_BYTES_MAX: usize = 256;
/// Passes are repeated until nothing changes: replacing one value may produce text that looks like another.
const PASSES_MAX: usize = 8;

/// The normalised text, at most [`TITLE_BYTES_MAX`] bytes on one line.
///
/// Numbers become `<n>`, ids `<id>`, hosts and addresses `<host>`, URLs `<url>`, hexadecimal `<hex>`, UUIDs `<uuid>`,
/// dates and times `<time>`, quoted values `<value>` and lists `<list>`. A status of three digits at the start stays:
/// it says what happened. Text in backticks stays too.
pub fn normalise(text: &str) -> String {
    let mut now = start_of(text, TEXT_BYTES_MAX).to_owned();
    for _ in 0..PASSES_MAX {
        let next = cut(&lists(&pass(&now)), TITLE_BYTES_MAX);
        if next == now {
            break;
        }
        now = next;
    }
    now
}

/// The first `max` bytes of a text, or one to three fewer where a character would be cut.
pub(super) fn start_of(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn pass(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let status = words::status(rest);
    out.push_str(&rest[..status]);
    rest = &rest[status..];
    // The last key seen, in JSON or in `key=value`.
    let mut key = "";
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() || is_unsafe(first) {
            // Collapse white space to one space, and drop it at both ends.
            if !out.is_empty() && !out.ends_with(' ') {
                out.push(' ');
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        if let Some(len) = words::placeholder(rest) {
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        if matches!(first, '"' | '\'' | '“' | '‘')
            && !out.ends_with(char::is_alphanumeric)
            && let Some(inner) = quoted(rest, first)
        {
            let whole = inner.len() + 2 * first.len_utf8();
            let after = rest[whole..].trim_start();
            if after.starts_with(':') || says_something(key, inner) {
                // A name or a sentence: drop the quotes and normalise the text inside.
                out.push_str(pass(inner).trim());
                key = inner;
            } else {
                out.push_str("<value>");
            }
            rest = &rest[whole..];
            continue;
        }
        if first == '`'
            && let Some(inner) = quoted(rest, first).filter(|inner| !inner.contains(is_odd))
        {
            let whole = inner.len() + 2;
            out.push_str(&rest[..whole]);
            rest = &rest[whole..];
            continue;
        }
        let len = words::length(rest);
        if len == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        match words::word(&rest[..len]) {
            Word::Plain(word) => {
                out.push_str(word);
                key = word;
            }
            Word::Taken(placeholder, tail) => {
                out.push_str(placeholder);
                out.push_str(tail);
            }
        }
        rest = &rest[len..];
    }
    out.truncate(out.trim_end().len());
    out
}

/// Whether a character rules out keeping a text in backticks: they hold names, not sentences.
fn is_odd(c: char) -> bool {
    is_unsafe(c) || c.is_whitespace() || c == ','
}

/// The text between this quote and the next of its kind, if that is near and on the same line.
fn quoted(text: &str, quote: char) -> Option<&str> {
    let close = match quote {
        '“' => '”',
        '‘' => '’',
        quote => quote,
    };
    if close.len_utf8() != quote.len_utf8() {
        return None;
    }
    let inner = start_of(&text[quote.len_utf8()..], QUOTED_BYTES_MAX);
    let end = inner.find(close)?;
    let (inner, after) = (&inner[..end], &text[quote.len_utf8() + end + close.len_utf8()..]);
    // An apostrophe inside a word does not end the quote.
    let ends = quote != '\'' || !after.starts_with(char::is_alphanumeric);
    (ends && !inner.contains('\n') && !inner.is_empty()).then_some(inner)
}

/// Whether a quoted text is more than a value: a sentence, or the value of a key that names the failure itself.
fn says_something(key: &str, inner: &str) -> bool {
    const TELLING: [&str; 12] = [
        "error",
        "message",
        "code",
        "type",
        "reason",
        "title",
        "detail",
        "status",
        "description",
        "name",
        "cause",
        "exception",
    ];
    inner.split_whitespace().count() >= 3 || TELLING.iter().any(|telling| key.eq_ignore_ascii_case(telling))
}

/// Replaces lists: three or more words with commas between them, or two after `of`.
fn lists(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    let mut out: Vec<&str> = Vec::with_capacity(words.len());
    words.reverse();
    while let Some(word) = words.pop() {
        let commas =
            std::iter::once(&word).chain(words.iter().rev()).take_while(|word| is_item(word)).count();
        let least = if out.last().is_some_and(|last| *last == "of") { 1 } else { 2 };
        if commas < least || words.len() < commas {
            out.push(word);
            continue;
        }
        // The items with commas, then the last one: `c`, `and c` or `c and d`.
        words.truncate(words.len() - (commas - 1));
        let joins = |words: &[&str]| matches!(words.last(), Some(&("and" | "or"))) && words.len() > 1;
        if joins(&words) {
            words.truncate(words.len() - 2);
        } else {
            words.pop();
            if joins(&words) {
                words.truncate(words.len() - 2);
            }
        }
        out.push("<list>");
    }
    out.join(" ")
}

fn is_item(word: &str) -> bool {
    word.len() > 1 && word.ends_with(',')
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
