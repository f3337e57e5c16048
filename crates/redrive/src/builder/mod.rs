//! What a user writes: pipelines and where their messages live.

pub(crate) mod faults;
pub(crate) mod pipeline;

pub(crate) mod build;

pub use build::Builder;
pub use faults::{BuildError, BuildFault, FaultKind};
pub use pipeline::Pipeline;
