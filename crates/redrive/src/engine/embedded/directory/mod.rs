//! The directory of the stores: its owner, its format, and which pipelines have a store in it.

pub mod accept;
pub mod dir;
pub mod format;
pub mod lock;
pub mod manifest;
pub mod unusable;
