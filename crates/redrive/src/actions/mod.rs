//! Who did what: an append-only file of actions, each synced before its change is answered.

pub mod action;
mod ranges;

mod log;

mod discards;
mod edit_undo;
mod edits;
mod groups;
mod imports;

pub use action::{Action, ActionKind};
pub use discards::{CLOSED_KEEP, Discarded, Restored};
pub use edit_undo::{EditUndone, NotUndone};
pub use edits::{EditPlan, EditWish, Skipped};
pub use imports::Imported;
pub use log::{ActionError, Actions};
