//! `[[alert]]`: whom to notify when something is wrong.
//!
//! - `table`: reads one table; [`target`]: the destination of a notice, also of one about purged subscriptions

mod table;
pub mod target;

pub use table::AlertConfig;
