//! Where messages are kept.

pub mod embedded;
