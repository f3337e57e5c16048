//! Messages in memory: read, and not done yet.
//!
//! - `queue`: [`queue::Backlog`], everything that waits, and which of it may start; `pending`: listed for people
//! - `lane`: one assigned partition; `lanes`: all of them
//! - `lookahead`, `spill`: messages that wait for their due time; `due_reserve`: which of them come next
//! - `keys`, `key_order`: messages that wait for their key; `held_back`: partitions that wait until their tiers are
//!   read

pub(crate) mod lane;
pub(crate) mod lanes;

mod due_reserve;
pub(crate) mod lookahead;
pub(crate) mod spill;

mod held_back;
pub(crate) mod key_order;
mod keys;

mod pending;
pub(crate) mod queue;
