//! A scenario is a file: a question, a method, parameters, variants, and expectations with their reasons.
//!
//! - [`mod@file`]: the file; [`size`]: which form of it runs; [`values`]: the syntax of durations and shares
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
