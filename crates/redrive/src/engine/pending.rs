//! Messages that are not terminal, as they are listed and steered: the state each is in, pages of them, and how one is taken
//! out of the queue by name.

#![warn(missing_docs)]

use redrive_core::{Message, Meta, Time};

use super::history::History;

/// The states of a message that is not terminal; each such message is in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PendingState {
    /// May start, and waits for a free slot.
    Ready,
    /// Was deferred, or nothing may start for now.
    Held,
    /// Waits for its due time.
    Delayed,
    /// Waits behind an earlier message of its key.
    KeyWait,
    /// Is being delivered.
    InFlight,
}

impl PendingState {
    /// In the order in which they are listed.
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

    /// The state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The state of a message that waits for its time.
    pub const fn timed(deferred: bool) -> Self {
        if deferred { Self::Held } else { Self::Delayed }
    }
}

impl std::fmt::Display for PendingState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a message waits, in the words of its engine: found by a listing, good for one [`super::Deliver::claim`]. The key is
/// also the cursor from which the listing of its state goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingAt {
    /// The message's number.
    pub number: u64,
    /// What it waits for.
    pub state: PendingState,
    /// Where it waits; the engine's own order.
    pub key: (u64, u64),
}

/// One message that waits or runs.
#[derive(Clone, Debug)]
pub struct PendingMessage {
    /// Where it waits.
    pub at: PendingAt,
    /// The message.
    pub message: Message,
    /// What is known of its attempts.
    pub meta: Meta,
    /// Its attempts.
    pub history: History,
    /// When it is or was due; `None` for a fresh message.
    pub due: Option<Time>,
}

impl PendingMessage {
    /// Bytes of the message and its story.
    pub fn size(&self) -> usize {
        self.message.wire().len() + self.history.raw().len()
    }
}

/// A part of what waits in one state, as far as was looked.
#[derive(Clone, Debug, Default)]
pub struct PendingScan {
    /// Those that were found.
    pub messages: Vec<PendingMessage>,
    /// Where to go on; `None` at the end.
    pub next: Option<(u64, u64)>,
    /// How many entries were looked at.
    pub scanned: u64,
    /// Messages of this state that are known to be there but cannot be shown: on Kafka, what was not read yet.
    pub unlisted: u64,
}
