//! `x-attempt-errors`: the failed attempts as a line of JSON that people can read with any tool.

use std::borrow::Cow;

use redrive::internal::engine::history::kind_of_text;
use redrive::internal::engine::{Attempt, History};
use redrive_core::{Class, FailureKind, Time};
use serde::{Deserialize, Serialize};

/// Keeps all our headers together within 16 KiB; the others are small.
const BYTES_MAX: usize = 14 * 1024;
/// Errors are cut to the first of these lengths with which the line fits. The last always fits: nine attempts, and at
/// worst six bytes per character.
const ERROR_CUTS: [usize; 4] = [1024, 512, 256, 64];

#[derive(Serialize, Deserialize)]
struct AttemptLine<'a> {
    n: u32,
    /// Milliseconds since 1970.
    at: u64,
    took_ms: u32,
    class: Cow<'a, str>,
    /// The kind of failure: `status`, `timeout`, `refused`, `dns`, `tls`, `proxy`, `reset` or `other`. Earlier versions
    /// did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<Cow<'a, str>>,
    counted: bool,
    /// Whether the effect may have happened although the attempt failed.
    ambiguous: bool,
    #[serde(borrow)]
    error: Cow<'a, str>,
}

impl AttemptLine<'_> {
    fn failure_kind(&self) -> FailureKind {
        match &self.kind {
            Some(name) => FailureKind::from_name(name, self.status).unwrap_or_default(),
            None => kind_of_text(&self.error),
        }
    }
}

pub(super) fn write(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for cut in ERROR_CUTS {
        text = write_cut(attempts, cut);
        if text.len() <= BYTES_MAX {
            break;
        }
    }
    text
}

fn write_cut(attempts: &[Attempt], cut: usize) -> String {
    let lines: Vec<_> = attempts
        .iter()
        .map(|attempt| AttemptLine {
            n: attempt.number,
            at: attempt.at.as_millis(),
            took_ms: attempt.took_ms,
            class: Cow::Borrowed(attempt.class.name()),
            kind: Some(Cow::Borrowed(attempt.kind.name())),
            status: attempt.kind.status(),
            code: attempt.code.as_deref().map(Cow::Borrowed),
            counted: attempt.counted,
            ambiguous: attempt.ambiguous,
            error: Cow::Borrowed(start_of(&attempt.error, cut)),
        })
        .collect();
    serde_json::to_string(&lines).unwrap_or_default()
}

/// Parses the history. What cannot be parsed is left out: it is for people, and nothing depends on it.
pub(super) fn read(json: &[u8]) -> History {
    let lines: Vec<AttemptLine<'_>> = serde_json::from_slice(json).unwrap_or_default();
    lines.iter().fold(History::default(), |history, line| {
        let Some(class) = Class::from_name(&line.class) else { return history };
        history.with(&Attempt {
            number: line.n,
            at: Time::from_millis(line.at),
            took_ms: line.took_ms,
            class,
            kind: line.failure_kind(),
            code: line.code.as_deref().map(str::to_owned),
            counted: line.counted,
            ambiguous: line.ambiguous,
            error: line.error.clone().into_owned(),
        })
    })
}

/// Returns at most the first `max` bytes of a text, ending at a character boundary.
pub(super) fn start_of(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_story_fits_and_keeps_every_attempt() {
        let attempt = |number| Attempt {
            number,
            at: Time::MAX,
            took_ms: u32::MAX,
            class: Class::RateLimited,
            kind: FailureKind::Status(429),
            code: Some("c".repeat(64)),
            counted: false,
            ambiguous: false,
            // The most expensive text there is in JSON.
            error: "\u{1}".repeat(1024),
        };
        let attempts: Vec<_> = (1..=9).map(attempt).collect();
        let text = write(&attempts);
        assert!(text.len() <= BYTES_MAX, "{}", text.len());
        let read: Vec<_> = read(text.as_bytes()).attempts();
        assert_eq!(read.iter().map(|a| a.number).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
        assert!(
            read.iter().zip(&attempts).all(|(read, was)| (read.kind, &read.code) == (was.kind, &was.code))
        );
    }

    #[test]
    fn a_story_that_somebody_broke_is_left_out() {
        for text in ["", "[", "{}", "[{\"n\":1}]"] {
            assert_eq!(read(text.as_bytes()), History::default(), "{text}");
        }
    }
}
