//! Decisions about a group, and the state that follows from a decision and the letters that came after it.

#![warn(missing_docs)]

use std::time::Duration;

use redrive_core::{GroupId, Time};
use serde_json::{Value, json};

use crate::timestamp;

/// The maximum length of a note.
pub const NOTE_BYTES_MAX: usize = 1_000;
/// The maximum number of further letters a snooze may wait for.
pub const MORE_MAX: u64 = 100_000;
/// The longest snooze: a year, with a day to spare for a leap year.
pub const SNOOZE_MAX: Duration = Duration::from_hours(24 * 366);

/// The state of a group. Derived, never stored: see [`GroupMark::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GroupState {
    /// Nothing was decided, or a snooze is over.
    Open,
    /// It was resolved, and letters came after that.
    Regressed,
    /// It is being worked on.
    Acknowledged,
    /// It raises no alerts for a while.
    Snoozed,
    /// Its cause is removed.
    Resolved,
}

impl GroupState {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Open, Self::Regressed, Self::Acknowledged, Self::Snoozed, Self::Resolved];

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Regressed => "regressed",
            Self::Acknowledged => "acknowledged",
            Self::Snoozed => "snoozed",
            Self::Resolved => "resolved",
        }
    }

    /// Whether it needs no attention now.
    pub const fn is_quiet(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Snoozed | Self::Resolved)
    }
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Nothing; only the note is kept.
    Open,
    /// It is acknowledged.
    Acknowledged,
    /// Its cause is removed; a new letter is a regression.
    Resolved,
    /// It is snoozed until a time, or until a number of further letters have opened, whichever comes first.
    Snoozed {
        /// The end of the snooze.
        until: Option<Time>,
        /// The number of further letters that ends it.
        more: Option<u64>,
    },
}

impl Handling {
    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Resolved => "resolved",
            Self::Snoozed { .. } => "snoozed",
        }
    }
}

/// A decision about a group: who, when and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMark {
    /// The group.
    pub group: GroupId,
    /// What was decided.
    pub handling: Handling,
    /// When it was decided.
    pub at: Time,
    /// Who decided it.
    pub by: String,
    /// The note, if any.
    pub note: Option<String>,
    /// The group's title at that time; later the group may have no letter left to take it from.
    pub title: String,
}

impl GroupMark {
    /// How many open letters that died after [`Self::at`] have to be counted to know the state.
    pub fn counts_up_to(&self) -> u64 {
        match self.handling {
            Handling::Open | Handling::Acknowledged => 0,
            Handling::Resolved => 1,
            Handling::Snoozed { more, .. } => more.unwrap_or(0),
        }
    }

    /// The state at `now`, if `open_since` open letters died after the decision.
    pub fn state(&self, open_since: u64, now: Time) -> GroupState {
        match self.handling {
            Handling::Open => GroupState::Open,
            Handling::Acknowledged => GroupState::Acknowledged,
            Handling::Resolved if open_since > 0 => GroupState::Regressed,
            Handling::Resolved => GroupState::Resolved,
            Handling::Snoozed { until, more } => {
                let is_over =
                    until.is_some_and(|until| now >= until) || more.is_some_and(|more| open_since >= more);
                if is_over { GroupState::Open } else { GroupState::Snoozed }
            }
        }
    }

    /// Whether it holds neither a decision nor a note.
    pub fn is_empty(&self) -> bool {
        self.handling == Handling::Open && self.note.is_none()
    }

    /// The JSON form for storage and for the API.
    pub fn to_json(&self) -> Value {
        let (until, more) = match self.handling {
            Handling::Snoozed { until, more } => (until, more),
            _ => (None, None),
        };
        json!({
            "group": self.group.to_string(),
            "state": self.handling.name(),
            "until": until.map(timestamp::print),
            "more": more,
            "at": timestamp::print(self.at),
            "by": self.by,
            "note": self.note,
            "title": self.title,
        })
    }

    /// Reads the JSON form; `None` if it is not a mark, or one of a later version with another meaning.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let until = match text("until") {
            Some(until) => Some(timestamp::parse(until)?),
            None => None,
        };
        let handling = match text("state")? {
            "open" => Handling::Open,
            "acknowledged" => Handling::Acknowledged,
            "resolved" => Handling::Resolved,
            "snoozed" => Handling::Snoozed { until, more: value.get("more").and_then(Value::as_u64) },
            _ => return None,
        };
        Some(Self {
            group: text("group")?.parse().ok()?,
            handling,
            at: timestamp::parse(text("at")?)?,
            by: text("by").unwrap_or_default().to_owned(),
            note: text("note").map(str::to_owned),
            title: text("title").unwrap_or_default().to_owned(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn mark(number: u64, handling: Handling) -> GroupMark {
        GroupMark {
            group: GroupId::from_number(number),
            handling,
            at: Time::from_millis(1_000 + number),
            by: "ops".to_owned(),
            note: None,
            title: "503 no".to_owned(),
        }
    }

    #[test]
    fn a_resolved_group_regresses_when_letters_come_and_a_snooze_ends() {
        let now = Time::from_millis(5_000);
        let state = |handling, since| mark(1, handling).state(since, now);
        assert_eq!(state(Handling::Resolved, 0), GroupState::Resolved);
        assert_eq!(state(Handling::Resolved, 1), GroupState::Regressed);
        assert_eq!(state(Handling::Acknowledged, 9), GroupState::Acknowledged);
        assert_eq!(state(Handling::Open, 9), GroupState::Open);
        let until = |ms| Handling::Snoozed { until: Some(Time::from_millis(ms)), more: None };
        assert_eq!(state(until(5_001), 9), GroupState::Snoozed);
        assert_eq!(state(until(5_000), 0), GroupState::Open);
        let more = Handling::Snoozed { until: None, more: Some(10) };
        assert_eq!((state(more, 9), state(more, 10)), (GroupState::Snoozed, GroupState::Open));
    }

    #[test]
    fn a_mark_comes_back_as_it_was_written() {
        let (until, more) = (Some(Time::from_millis(77_000)), Some(3));
        for handling in [
            Handling::Open,
            Handling::Acknowledged,
            Handling::Resolved,
            Handling::Snoozed { until, more },
            Handling::Snoozed { until: None, more },
        ] {
            for note in [None, Some("ticket \"17\"\n".to_owned())] {
                let mark = GroupMark { note, ..mark(1, handling) };
                assert_eq!(GroupMark::from_json(&mark.to_json()), Some(mark));
            }
        }
        assert_eq!(GroupMark::from_json(&json!({ "group": "g1", "state": "open" })), None);
        assert_eq!(GroupMark::from_json(&json!([])), None);
    }
}
