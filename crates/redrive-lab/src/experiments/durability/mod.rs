//! Kills and long runs: what is repeated, lost or used up.

pub(super) mod kills;
pub(super) mod soak;
