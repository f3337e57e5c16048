//! Decides which of several records of one message counts.
//!
//! - `detector`: compares records as they are read
//! - `twins`: with others in the tiers; `died`: with the dead-letter topic; `late`: with the record that a late copy
//!   replaces

pub(crate) mod detector;
pub(crate) mod died;
mod late;
pub(crate) mod twins;
