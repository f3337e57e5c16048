//! Matches letters and messages against a filter. Pure: the time is an argument.

use std::time::Duration;

use redrive_core::{GroupId, Message, Meta, Reason, Time};

use super::{Filter, PayloadTest, Test};
use crate::engine::continued::accepted_id;
use crate::engine::{Attempt, Letter, LetterState, PendingMessage};
use crate::letters::correlation::correlation_id;
use crate::letters::decimal::Decimal;
use crate::letters::edit::json_text::JsonText;
use crate::letters::edit::{JsonValue, Pointer};

/// The letter or message to match, with parts that several terms may need, read once.
struct Looked<'a> {
    message: &'a Message,
    meta: &'a Meta,
    /// Set for a letter only.
    letter: Option<(Reason, LetterState, GroupId)>,
    edits: &'a [String],
    last: Option<Attempt>,
    payload: Option<JsonText>,
    age: Duration,
}

impl Filter {
    /// Whether the filter matches this letter at `now`. Its age is the time since its last death.
    pub fn matches(&self, letter: &Letter, now: Time) -> bool {
        self.matches_as(letter, &letter.message, now)
    }

    /// Whether the filter would match this letter with another message, such as one that an edit has replaced.
    pub(in crate::letters) fn matches_as(&self, letter: &Letter, message: &Message, now: Time) -> bool {
        let Letter { meta, reason, state, group, .. } = letter;
        let looked = Looked {
            message,
            meta,
            letter: Some((*reason, *state, group.group)),
            edits: &letter.edits,
            last: letter.history.attempts().pop(),
            payload: self.payload(message),
            age: now.since(letter.dead_at),
        };
        self.fits(&looked)
    }

    /// Whether the filter matches this pending message at `now`. Its age is the time since its creation.
    pub fn matches_pending(&self, found: &PendingMessage, now: Time) -> bool {
        let PendingMessage { message, meta, .. } = found;
        let looked = Looked {
            message,
            meta,
            letter: None,
            edits: &[],
            last: found.history.attempts().pop(),
            payload: self.payload(message),
            age: now.since(meta.created),
        };
        self.fits(&looked)
    }

    fn fits(&self, looked: &Looked<'_>) -> bool {
        self.terms.iter().all(|term| looked.fits(&term.test) != term.negated)
    }

    /// The payload as JSON, if a term needs it.
    fn payload(&self, message: &Message) -> Option<JsonText> {
        let asks = self.terms.iter().any(|term| matches!(term.test, Test::Payload { .. }));
        message.payload().filter(|_| asks).and_then(|payload| JsonText::parse(payload).ok())
    }
}

impl Looked<'_> {
    fn fits(&self, test: &Test) -> bool {
        let Self { message, meta, age, .. } = self;
        match test {
            Test::Reason(values) => self.letter.is_some_and(|(reason, ..)| values.contains(&reason)),
            Test::State(values) => self.letter.is_some_and(|(_, state, _)| values.contains(&state)),
            Test::Group(values) => self.letter.is_some_and(|(.., group)| values.contains(&group)),
            Test::Edit(values) => self.edits.iter().any(|edit| values.contains(edit)),
            Test::Class(values) => self.last.as_ref().is_some_and(|last| values.contains(&last.class)),
            Test::ErrorClass(values) => {
                self.last.as_ref().is_some_and(|last| values.contains(&last.class.family()))
            }
            Test::Error(values) => self.last.as_ref().is_some_and(|last| {
                let error = last.error.to_lowercase();
                values.iter().any(|value| error.contains(&value.to_lowercase()))
            }),
            Test::Status(values) => self
                .last
                .as_ref()
                .and_then(status_of)
                .is_some_and(|status| values.iter().any(|v| v.how.holds(&status, &v.with))),
            Test::Attempts(values) => {
                let attempts = u64::from(meta.attempts);
                values.iter().any(|v| v.how.holds(&attempts, &v.with))
            }
            Test::Replays(values) => {
                let replays = u64::from(meta.replays);
                values.iter().any(|v| v.how.holds(&replays, &v.with))
            }
            Test::Age(values) => values.iter().any(|v| v.how.holds(age, &v.with)),
            Test::Key(values) => {
                message.key().is_some_and(|key| values.iter().any(|value| value.as_bytes() == key))
            }
            Test::Tenant(values) => {
                message.tenant().is_some_and(|tenant| values.iter().any(|value| value == tenant))
            }
            Test::Id(values) => {
                let ids = [message.id(), accepted_id(message.id(), self.edits)];
                values.iter().any(|value| ids.contains(&value.as_str()))
            }
            Test::CorrelationId(values) => values.contains(&correlation_id(message)),
            Test::Header { name, values } => message
                .headers()
                .filter(|(header, _)| header.eq_ignore_ascii_case(name))
                .any(|(_, found)| values.iter().any(|value| value.as_bytes() == found)),
            Test::Payload { path, values } => {
                let at = Pointer::dotted(path);
                let found = self.payload.as_ref().and_then(|payload| payload.value(&at));
                found.is_some_and(|found| values.iter().any(|value| payload_fits(value, &found)))
            }
        }
    }
}

/// The HTTP status that an attempt failed with, if it got an answer.
pub fn status_of(attempt: &Attempt) -> Option<u64> {
    attempt.kind.status().map(u64::from)
}

fn payload_fits(test: &PayloadTest, found: &JsonValue) -> bool {
    match (test, found) {
        (PayloadTest::Text(text), JsonValue::Text(found)) => text == found,
        // 42 and 42.0 are the same number, whatever the spelling.
        (PayloadTest::Text(text), JsonValue::Number(found)) => Decimal::parse(text).as_ref() == Some(found),
        (PayloadTest::Text(text), JsonValue::Bool(found)) => *text == found.to_string(),
        (PayloadTest::Text(text), JsonValue::Null) => text == "null",
        (PayloadTest::Number(v), JsonValue::Number(found)) => v.how.holds(found, &v.with),
        (PayloadTest::Text(_), JsonValue::Items(_) | JsonValue::Fields(_)) | (PayloadTest::Number(_), _) => {
            false
        }
    }
}
