//! The store of one pipeline, and its implementation of the seam.

mod claim;
mod contents;
mod crash_marks;
mod deliver;
mod dump;
mod find;
mod in_flight;
mod key_gate;
mod key_line;
mod letters;
pub mod location;
mod maintain;
pub mod open;
pub(super) mod open_logs;
mod pending;
mod query;
#[allow(clippy::module_inception)] // the folder is named for the type, and so is the file
pub(super) mod store;
mod take;
mod tickets;
mod waiting;
mod workers;

pub use store::Store;
