//! Pending messages as they are listed and steered: their states, pages of them, and the reference by which one is
//! taken out of the queue.

#![warn(missing_docs)]

use redrive_core::{Message, Meta, Time};

use super::history::History;

/// The states of a pending message; each message is in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PendingState {
    /// It may start and waits for a permit.
    Ready,
    /// It was deferred, or its pipeline may not start anything now.
    Held,
    /// It waits for its due time.
    Delayed,
    /// It waits behind an earlier message of its key.
    KeyWait,
    /// It is handed out.
    InFlight,
}

impl PendingState {
    /// All states, in the order in which they are listed.
    pub const ALL: [Self; 5] = [Self::Ready, Self::Held, Self::Delayed, Self::KeyWait, Self::InFlight];

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Held => "held",
            Self::Delayed => "delayed",
            Self::KeyWait => "key_wait",
            Self::InFlight => "in_flight",
        }
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The state of a message that waits for its due time.
    pub const fn timed(deferred: bool) -> Self {
        if deferred { Self::Held } else { Self::Delayed }
    }
}

impl std::fmt::Display for PendingState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a message waits, as its engine says it. A listing returns it, and it is good for one
/// [`super::Deliver::claim`]. The
/// key is also the cursor from which the listing of its state goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingAt {
    /// The message's number.
    pub number: u64,
    /// The state in which it waits.
    pub state: PendingState,
    /// Its position in the engine's own order.
    pub key: (u64, u64),
}

/// One pending message.
#[derive(Clone, Debug)]
pub struct PendingMessage {
    /// Where it waits.
    pub at: PendingAt,
    /// The message.
    pub message: Message,
    /// The summary of its attempts.
    pub meta: Meta,
    /// Its attempts.
    pub history: History,
    /// When it is or was due; `None` if it never had a due time.
    pub due: Option<Time>,
}

impl PendingMessage {
    /// The bytes of message and history.
    pub fn size(&self) -> usize {
        self.message.wire().len() + self.history.raw().len()
    }
}

/// One page of the messages in one state.
#[derive(Clone, Debug, Default)]
pub struct PendingScan {
    /// The messages found.
    pub messages: Vec<PendingMessage>,
    /// The cursor to go on from; `None` at the end.
    pub next: Option<(u64, u64)>,
    /// How many entries were looked at.
    pub scanned: u64,
    /// Messages known to be in this state that cannot be listed: on Kafka, records not read yet.
    pub unlisted: u64,
}
