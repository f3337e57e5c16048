//! A scenario is a file: a question, how it is answered, parameters, variants, and what is expected with the reason.
//!
//! - [`mod@file`]: the file; [`size`]: which form of it is run; [`values`]: how durations and shares are written in it
//! - `content`: the file as text, and its hash
//! - [`expect`]: expected ranges, and the verdict on a figure

mod content;
pub mod expect;
pub mod file;
pub mod size;
pub mod values;

pub use expect::{Expectation, FigureVerdict};
pub use file::{AUDIT, Broken, Clock, DownstreamKind, Scenario, ScenarioFault, Settings, Variant};
pub use size::{RangesOf, Size};
pub use values::{Share, Span};
