//! The results of a run.
//!
//! - [`outcome`]: what an experiment measured; [`mod@unit`]: how figures are formatted
//! - [`summary`]: the outcome with machine, command and verdicts, as stored in `summary.json`
//! - [`plot`]: curves as SVG, [`axis`]: their axes, `redraw`: redraws them from their samples; [`heat_map`]: grids;
//!   [`page`]: the page as Markdown and HTML; [`files`]: writes all of it
//! - [`committed`]: results that are committed, and those that should be
//! - [`report`]: the index, docs/findings.md and the pages below it, from all committed results
//! - [`requirements`]: the questions; `answer`: their figures; `walk`: goes through the requirements; `first_page`:
//!   all answers

mod answer;
pub mod axis;
pub mod committed;
pub mod files;
mod first_page;
pub mod heat_map;
pub mod outcome;
pub mod page;
pub mod plot;
mod redraw;
pub mod report;
pub mod requirements;
pub mod summary;
pub mod unit;
mod walk;

pub use axis::{Axes, Axis, Scale};
pub use committed::{ResultKind, ScenarioRuns};
pub use files::ResultFault;
pub use heat_map::{HeatMap, HeatPanel};
pub use outcome::{Bound, Column, ForecastLine, Outcome, VariantResult};
pub use plot::{Curve, Plot};
pub use summary::Summary;
pub use unit::Unit;
