//! The tables on disk: sorted runs that are written once, merged in the background, and verified on each read.

mod catalog;
mod files;
mod filter;
mod merge;
mod run;
mod section;
mod sorted;
mod tiers;

pub use sorted::{SortedRuns, check};
