//! Kills and long runs: what is repeated, lost or used up.

pub(super) mod kills;
mod kills_kafka;
pub(super) mod soak;
