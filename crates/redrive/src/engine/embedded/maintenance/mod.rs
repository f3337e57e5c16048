//! Everything slow that must not hold up deliveries: checkpoints, cleaning, scrubbing.

pub mod clean;
pub(crate) mod erasures;
pub mod maintainer;
pub mod scrub;
