//! What a run leaves behind.
//!
//! - [`outcome`]: what an experiment measured; [`mod@unit`]: how a figure reads
//! - [`summary`]: all of it with machine, command and verdicts, as `summary.json` stores it
//! - [`plot`]: curves as SVG; [`page`]: the page as Markdown and HTML; [`files`]: writes them
//! - [`report`]: the index and docs/findings.md from all results that are committed

pub mod files;
pub mod outcome;
pub mod page;
pub mod plot;
pub mod report;
pub mod summary;
pub mod unit;

pub use files::ResultFault;
pub use outcome::{Bound, Column, ForecastLine, Outcome, VariantResult};
pub use plot::{Curve, Plot};
pub use summary::Summary;
pub use unit::Unit;
