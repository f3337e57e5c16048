//! Messages in memory: what was read and is not done.
//!
//! - `queue`: [`queue::Backlog`], everything that waits, and what of it may start; `pending`: listed for people
//! - `lane`: one assigned partition; `lanes`: all of them
//! - `lookahead`, `spill`: what waits for its time; `due_reserve`: what of it comes next
//! - `keys`, `key_order`: what waits for its key; `held_back`: what waits for its tiers to be read

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
