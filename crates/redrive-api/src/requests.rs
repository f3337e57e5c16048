//! Requests about dead letters. All of them select letters in the same way.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Payload;

/// Selects letters. An empty selection selects nothing; use `all` for all letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterSelection {
    pub filter: Option<String>,
    pub ids: Option<Vec<String>>,
    pub since: Option<String>,
    pub all: bool,
}

/// Declares a request about letters: the fields of a selection, and its own fields. A macro instead of
/// `#[serde(flatten)]`, which cannot refuse unknown fields.
macro_rules! about_letters {
    ($(#[$outer:meta])* pub struct $name:ident { $($(#[$inner:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Letters that match this filter.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub filter: Option<String>,
            /// Letters or messages by id.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub ids: Option<Vec<String>>,
            /// Letters that died since then: a time, or a span such as 1h.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub since: Option<String>,
            /// All open letters.
            #[serde(default, skip_serializing_if = "is_false")]
            pub all: bool,
            $($(#[$inner])* pub $field: $kind,)*
        }

        impl $name {
            /// A request about these letters, with all other fields empty.
            pub fn about(letters: LetterSelection) -> Self {
                let LetterSelection { filter, ids, since, all } = letters;
                Self { filter, ids, since, all, ..Self::default() }
            }

            /// Moves the selection out, since `ids` may be many.
            pub fn take_selection(&mut self) -> LetterSelection {
                LetterSelection {
                    filter: self.filter.take(),
                    ids: self.ids.take(),
                    since: self.since.take(),
                    all: self.all,
                }
            }
        }
    };
}

about_letters! {
    /// A change of the messages of open letters, or the undo of one.
    pub struct Edit {
        /// Only letters whose payload matches, as in /region == "DE" and /amount > 100.
        #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
        pub condition: Option<String>,
        /// Values by JSON pointer, stored exactly as written.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub set: BTreeMap<String, Box<RawValue>>,
        /// JSON pointers of values to remove.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub unset: Vec<String>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub set_headers: BTreeMap<String, String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub unset_headers: Vec<String>,
        /// Replaces the whole payload.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub payload: Option<Payload>,
        /// Only letters that still have this payload.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub was: Option<Payload>,
        /// A payload for each letter, in place of a selection and one change for all. At most 10,000.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub payloads: Option<Vec<LetterPayload>>,
        /// Required if an attempt ended without an answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub message_id: Option<MessageIdChoice>,
        #[serde(default)]
        pub dry_run: bool,
        /// An edit to undo, such as e-12; then no other field.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub undo: Option<String>,
    }
}

/// The new payload of one letter.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LetterPayload {
    /// The full id, as in orders/17.
    pub letter: String,
    pub payload: Payload,
    /// The payload that it was made from; a letter with a different payload is refused.
    pub was: Payload,
}

/// Whether edited messages keep their id or get a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "lowercase")]
pub enum MessageIdChoice {
    Same,
    New,
}

about_letters! {
    /// A discard of open letters.
    pub struct Discard {
        /// Why; stored with the letters and in the action log. Not required with `dry_run`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(default)]
        pub dry_run: bool,
    }
}

about_letters! {
    /// Letters whose content is erased for good: in any state, unless the filter names one; with `all`, the open ones.
    pub struct Erase {
        /// Why; stored in the tombstones and in the action log. Not required with `dry_run`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(default)]
        pub dry_run: bool,
    }
}

/// The undo of a discard.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The name of a discard, such as d-9.
    pub id: String,
}

about_letters! {
    /// A replay of open letters.
    pub struct StartReplay {
        pub pipeline: String,
        /// Letters per second.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rate: Option<f64>,
        /// Include letters that were replayed three times.
        #[serde(default)]
        pub force: bool,
        /// `source`: onto the topic they came from, where other consumer groups read them again.
        #[schemars(extend("enum" = ["pipeline", "source", null]))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub to: Option<String>,
        /// This many letters go first, the rest once these have succeeded; 10 by default, 0 for none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub canary: Option<u64>,
        /// Stops when more than this share of the last 50 letters died again; 20% by default, `off` for never.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stop_at: Option<String>,
        /// What to do with letters that have an attempt whose end is unknown; 409 if there are some and this is missing.
        #[schemars(extend("enum" = ["ok", "skip", null]))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ambiguous: Option<String>,
        /// Include letters that were first attempted before the `ledger_horizon` of the pipeline; 409 if there are
        /// some and this is not given.
        #[serde(default, skip_serializing_if = "is_false")]
        pub beyond_ledger: bool,
        /// Without letters whose key has had a later success; they stay open.
        #[serde(default, skip_serializing_if = "is_false")]
        pub skip_superseded: bool,
        /// No more letters of one tenant than this, with those that wait in other replays; the others stay open.
        #[schemars(range(min = 1))]
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tenant_max: Option<u64>,
        #[serde(default)]
        pub dry_run: bool,
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_only_what_was_asked() {
        let letters = LetterSelection { all: true, ..LetterSelection::default() };
        let mut discard = Discard { reason: Some("test".into()), ..Discard::about(letters.clone()) };
        let text = serde_json::to_string(&discard).unwrap();
        assert_eq!(text, r#"{"all":true,"reason":"test","dry_run":false}"#);
        assert_eq!(discard.take_selection(), letters);
    }

    #[test]
    fn a_field_that_does_not_exist_is_refused() {
        assert!(serde_json::from_str::<Discard>(r#"{"al":true}"#).is_err());
        assert!(
            serde_json::from_str::<StartReplay>(r#"{"all":true}"#).is_err(),
            "a replay needs its pipeline"
        );
    }

    #[test]
    fn a_value_to_set_is_taken_over_digit_for_digit() {
        let text = r#"{"all":true,"set":{"/amount":1.10},"dry_run":true}"#;
        let edit: Edit = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&edit).unwrap(), text);
    }
}
