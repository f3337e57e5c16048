//! What `redrive check` computes: assumptions and objectives as given, the figures of a pipeline, and their text.

pub mod assume;
pub mod figures;
pub mod slo;
pub mod text;

pub use assume::Assumed;
pub use figures::{PipelineFigures, Questions};
pub use slo::{Slo, SloResult};
