//! `[[alert]]`: who is notified when something is wrong.
//!
//! - `table`: what one table says; [`target`]: where a notice goes, also one about purged subscriptions

mod table;
pub mod target;

pub use table::AlertConfig;
