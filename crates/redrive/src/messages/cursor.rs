//! The position of a listing of messages: a part of the pending messages, and a place in it.

use std::fmt;
use std::str::FromStr;

use crate::engine::PendingState;
use crate::run::steer::Part;

/// The parts, in the order in which a listing goes through them.
pub(super) const PARTS: [Part; 6] = [
    Part::Waiting(PendingState::Ready),
    Part::Unstarted,
    Part::Waiting(PendingState::Held),
    Part::Waiting(PendingState::Delayed),
    Part::Waiting(PendingState::KeyWait),
    Part::Started,
];

/// A position in a listing. Its text form, such as `delayed.1794778805120.17`, is opaque to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(super) part: Part,
    pub(super) after: Option<(u64, u64)>,
}

/// The text is not a cursor of a listing of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a cursor of a listing of messages")]
pub struct BadCursor;

const fn name(part: Part) -> &'static str {
    match part {
        Part::Waiting(state) => state.name(),
        Part::Unstarted => "unstarted",
        Part::Started => PendingState::InFlight.name(),
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(self.part))?;
        match self.after {
            Some((first, second)) => write!(f, ".{first}.{second}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let mut words = text.split('.');
        let named = words.next().unwrap_or_default();
        let part = PARTS.into_iter().find(|part| name(*part) == named).ok_or(BadCursor)?;
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        let after = match numbers.as_deref() {
            Some([]) => None,
            Some([first, second]) => Some((*first, *second)),
            _ => return Err(BadCursor),
        };
        Ok(Self { part, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_nothing_else_is() {
        for part in PARTS {
            for after in [None, Some((0, 0)), Some((u64::MAX, 7))] {
                let cursor = Cursor { part, after };
                assert_eq!(cursor.to_string().parse(), Ok(cursor));
            }
        }
        for text in
            ["", "17", "delayed.", "delayed.1", "delayed.1.2.3", "delayed.x.2", "dead.1.2", "delayed.-1.2"]
        {
            assert_eq!(text.parse::<Cursor>(), Err(BadCursor), "{text}");
        }
    }
}
