//! A scenario is a file: a question, how it is answered, parameters, variants, and what is expected with the reason.
//!
//! - [`mod@file`]: the file; [`values`]: how durations and shares are written in it
//! - [`expect`]: expected ranges, and the verdict on a figure

pub mod expect;
pub mod file;
pub mod values;

pub use expect::{Expectation, FigureVerdict};
pub use file::{Broken, Clock, Scenario, ScenarioFault, Size, Variant};
pub use values::{Share, Span};
