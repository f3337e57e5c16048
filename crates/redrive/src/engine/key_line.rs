//! The line of one key: whom the others wait for, and how many wait.

#![warn(missing_docs)]

use super::message_state::MessageState;

/// More than this are not counted: who asks must not hold up deliveries.
pub const WAITING_MAX: usize = 10_000;

/// A key of which a message has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// The one that runs, or waits for its due time, and that the others wait for; with `block_key` the open letter that
    /// blocks the key.
    pub head: MessageState,
    /// How many stand behind it, as far as they were looked at; at most [`WAITING_MAX`].
    pub waiting: u64,
}
