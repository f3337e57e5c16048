//! Messages in memory: what was read and is not done.
//!
//! - `lane`: one assigned partition; `lookahead`, `spill`: what waits for its time; `keys`: what waits for its key

pub(crate) mod keys;
pub(crate) mod lane;
pub(crate) mod lookahead;
pub(crate) mod spill;
