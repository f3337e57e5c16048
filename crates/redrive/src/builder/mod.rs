//! The user-facing builders: pipelines, and the engine that stores their messages.

pub(crate) mod faults;
pub(crate) mod pipeline;

pub(crate) mod build;

pub use build::Builder;
pub use faults::{BuildError, BuildFault, FaultKind};
pub use pipeline::Pipeline;
