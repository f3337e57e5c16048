//! Computes the fingerprint of a letter from its stored fields.

#![warn(missing_docs)]

use std::sync::Arc;

use redrive_core::fingerprint::{DeathCause, fingerprint};
use redrive_core::{Fingerprint, GroupRules, Reason};

use crate::engine::history::{Attempt, History};
use crate::letters::filter::matches::status_of;

/// How the letters of a pipeline are grouped.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Grouping {
    /// The kind of sink, which is part of each fingerprint.
    pub sink: &'static str,
    /// The user's rules.
    pub rules: Arc<GroupRules>,
}

impl Grouping {
    /// The fingerprint of a message that dies for this reason, with its last attempt, if any.
    pub fn of(&self, reason: Reason, last: Option<&Attempt>) -> Fingerprint {
        fingerprint(&self.cause(reason, last), &self.rules)
    }

    /// The fingerprint of a letter stored without one, by a version that had no groups. Uses the current fingerprint
    /// version and no rules, so that a change of the rules does not move the letter.
    pub fn of_ungrouped(&self, reason: Reason, history: &History) -> Fingerprint {
        let last = history.attempts().pop();
        fingerprint(&self.cause(reason, last.as_ref()), &GroupRules::default())
    }

    fn cause<'a>(&self, reason: Reason, last: Option<&'a Attempt>) -> DeathCause<'a> {
        DeathCause {
            reason,
            class: last.map(|last| last.class),
            status: last.and_then(status_of),
            error: last.map(|last| last.error.as_str()),
            sink: self.sink,
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::{Class, FailureKind, GroupRule, Time};

    use super::*;

    #[test]
    fn a_letter_without_a_fingerprint_gets_that_of_one_without_rules() {
        let attempt = Attempt {
            number: 1,
            at: Time::ZERO,
            took_ms: 0,
            class: Class::Permanent,
            counted: true,
            ambiguous: false,
            error: "404 order 17".to_owned(),
            kind: FailureKind::Status(404),
            code: None,
        };
        let plain = Grouping { sink: "webhook", rules: Arc::default() };
        let rules = Arc::new(GroupRules::new([GroupRule::new("order", "orders").unwrap()]));
        let ruled = Grouping { rules, ..plain.clone() };
        let history = History::default().with(&attempt);
        let expected = plain.of(Reason::Permanent, Some(&attempt));
        assert_eq!(expected.title, "404 order <n>");
        assert_eq!(ruled.of_ungrouped(Reason::Permanent, &history), expected);
        assert_eq!(ruled.of(Reason::Permanent, Some(&attempt)).title, "orders");
    }
}
