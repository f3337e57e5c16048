//! Slow work that must not delay deliveries: checkpoints, cleaning, scrubbing.

pub mod clean;
pub(crate) mod erasures;
pub mod maintainer;
pub mod scrub;
