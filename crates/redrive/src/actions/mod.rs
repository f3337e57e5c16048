//! Who did what: an append-only file of actions, each synced before its change is answered.

pub mod action;
mod ranges;

mod log;

mod discards;
mod edit_undo;
mod edits;
mod erasures;
mod groups;
mod imports;
mod retention;

pub use action::{Action, ActionKind};
pub use discards::{CLOSED_KEEP, Discarded, Restored};
pub use edit_undo::{EditUndone, NotUndone};
pub use edits::{EditPlan, EditWish, Skipped};
pub use erasures::{Erased, wipe};
pub use imports::Imported;
pub use log::{ActionError, Actions};
pub use retention::RETENTION_ACTOR;
