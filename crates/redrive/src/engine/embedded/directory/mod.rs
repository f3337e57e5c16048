//! The directory of the stores: its owner, its format, and its list of pipelines.

pub mod accept;
pub mod dir;
pub mod format;
pub mod lock;
pub mod manifest;
pub mod unusable;
