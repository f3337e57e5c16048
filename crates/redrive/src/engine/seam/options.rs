//! What an engine needs to know of a pipeline.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::groups::Grouping;

/// Whether messages of one key wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeliveryOrder {
    /// Messages of one key are delivered in any order.
    #[default]
    None,
    /// No later message of a key starts before an earlier one is terminal; the order is that of acceptance. A message
    /// that was ingested with a delay joins its key's line when it comes due, a letter when it is replayed.
    Key,
}

/// What becomes of a key's followers when one of its messages is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AfterDead {
    /// The next message of the key goes on.
    #[default]
    Continue,
    /// Followers are parked as `key_blocked` until the letters of the key are replayed or discarded.
    BlockKey,
}

/// Where the code runs that delivers messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Execution {
    /// In this process, which it can end: whatever was running when a process died is a suspect.
    #[default]
    InProcess,
    /// In another process or on another machine. No message can end this process, so none is ever suspected.
    Elsewhere,
}

/// How the previous process ended, as far as it was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LastEnd {
    /// Unknown: unless it ended cleanly, whatever was running is a suspect.
    #[default]
    Unknown,
    /// It was ended from outside: by a person, a deployment, the machine going down. What was running is not suspected
    /// of that.
    FromOutside,
}

impl LastEnd {
    /// From what a supervisor knows: the signal that ended the process, and whether the system has killed it for lack of
    /// memory. Signals that others send are from outside: HUP, INT, QUIT, KILL and TERM. A process that aborts, runs into a
    /// fault of its memory or exits with a code has done that itself.
    pub const fn of(signal: Option<i32>, out_of_memory: bool) -> Self {
        match signal {
            Some(1 | 2 | 3 | 9 | 15) if !out_of_memory => Self::FromOutside,
            _ => Self::Unknown,
        }
    }
}

/// What an engine needs to know of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StoreOptions {
    /// Whether messages of one key wait for each other.
    pub ordering: DeliveryOrder,
    /// What becomes of a key's followers when one of its messages is dead.
    pub after_dead: AfterDead,
    /// How long an ingested id is remembered; `None` turns deduplication off.
    pub dedup: Option<Duration>,
    /// How long what is in flight may take once another process wants it; `None` leaves it to the engine. Only engines that
    /// share their messages with other processes ask.
    pub drain: Option<Duration>,
    /// Where the code runs that delivers messages.
    pub execution: Execution,
    /// How the process before this one ended.
    pub last_end: LastEnd,
    /// Which letters belong together; their fingerprints are stored with them.
    pub grouping: Grouping,
    /// The resolved policy, to be stored with letters; see [`crate::engine::letter_options`].
    pub letter_options: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::LastEnd;

    #[test]
    fn only_signals_of_others_end_a_process_from_outside() {
        for signal in [1, 2, 3, 9, 15] {
            assert_eq!(LastEnd::of(Some(signal), false), LastEnd::FromOutside);
            assert_eq!(LastEnd::of(Some(signal), true), LastEnd::Unknown, "out of memory");
        }
        for signal in [None, Some(4), Some(6), Some(7), Some(8), Some(11)] {
            assert_eq!(LastEnd::of(signal, false), LastEnd::Unknown, "{signal:?}");
        }
    }
}
