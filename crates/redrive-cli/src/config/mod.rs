//! `redrive.toml`, the environment and flags become one checked configuration.

mod flags;

pub use flags::ProcessorFlags;
