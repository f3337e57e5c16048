//! What a user writes: pipelines and where their messages live.

pub mod faults;
pub mod pipeline;

pub mod build;

pub use build::Builder;
pub use faults::{BuildError, BuildFault, FaultKind};
pub use pipeline::Pipeline;
