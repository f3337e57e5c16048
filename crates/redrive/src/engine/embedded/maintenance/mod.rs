//! Everything slow that must not hold up deliveries: checkpoints, cleaning, scrubbing.

pub mod clean;
pub mod keeper;
pub mod scrub;
