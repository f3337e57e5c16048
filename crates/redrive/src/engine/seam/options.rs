//! What an engine needs to know about a pipeline.

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
    /// that was ingested with a delay joins its key's line when it comes due, a replayed letter when it is requeued.
    Key,
}

/// What happens to the followers of a message in its key line when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AfterDead {
    /// The next message of the key goes on.
    #[default]
    Continue,
    /// Followers are parked as `key_blocked` until the letters of the key are replayed or discarded.
    BlockKey,
}

/// Where the code that delivers messages runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Execution {
    /// In this process, which it can kill: everything that was running when a process died is a suspect.
    #[default]
    InProcess,
    /// In another process or on another machine. No message can end this process, so none is ever suspected.
    Elsewhere,
}

/// How the previous process ended, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LastEnd {
    /// Unknown: unless the end was clean, everything that was running is a suspect.
    #[default]
    Unknown,
    /// From outside: by an operator, a deployment, or the machine going down. Running messages are not suspected.
    FromOutside,
}

impl LastEnd {
    /// Derives the end from what a supervisor knows: the signal that ended the process, and whether the system killed
    /// it for lack of memory. HUP, INT, QUIT, KILL and TERM are sent from outside. An abort, a memory fault or an exit
    /// code is the process's own doing.
    pub const fn of(signal: Option<i32>, out_of_memory: bool) -> Self {
        match signal {
            Some(1 | 2 | 3 | 9 | 15) if !out_of_memory => Self::FromOutside,
            _ => Self::Unknown,
        }
    }
}

/// What an engine needs to know about a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StoreOptions {
    /// Whether messages of one key wait for each other.
    pub ordering: DeliveryOrder,
    /// What happens to the followers of a message in its key line when it dies.
    pub after_dead: AfterDead,
    /// How long an ingested id is remembered; `None` disables deduplication.
    pub dedup: Option<Duration>,
    /// How long messages in flight may take once another process needs them; `None` leaves it to the engine. Only used
    /// by engines that share their messages with other processes.
    pub drain: Option<Duration>,
    /// Where the code that delivers messages runs.
    pub execution: Execution,
    /// How the process before this one ended.
    pub last_end: LastEnd,
    /// How letters are grouped; their fingerprints are stored with them.
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
