//! Which of two records of one message counts: `twins` in the tiers, `died` in the dead-letter topic.

pub(crate) mod died;
pub(crate) mod twins;
