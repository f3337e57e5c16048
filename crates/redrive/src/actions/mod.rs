//! The action log: an append-only file of actions, each synced before it is acknowledged.
//!
//! - `action`: one line of the log; `log`: the file
//! - `discards`, `edits`, `edit_undo`, `erasures`, `imports`, `groups`: one kind of change each, recorded and then
//!   made
//! - `shared`, `unfinished`, `finish`: actions that several processes share, and completing those that one left
//!   unfinished
//! - `actions`: the entry point for all changes

mod action;
mod error;
mod ranges;

mod shared;
mod unfinished;

mod log;

mod discards;
mod edit_undo;
mod edits;
mod erasures;
mod finish;
mod groups;
mod imports;
mod retention;
mod sweep;

#[allow(clippy::module_inception)] // the folder is named for the type, and so is the file
mod actions;

#[doc(hidden)]
pub use action::ActionStep;
pub use action::{Action, ActionKind};
pub use actions::Actions;
#[doc(hidden)]
pub use discards::RESOLVED_RETENTION;
pub use discards::{Discarded, Restored};
pub use edit_undo::{EditUndone, NotUndone};
pub use edits::{EditPlan, EditWish, NewPayload, Skipped};
pub use erasures::Erased;
pub use error::ActionError;
#[doc(hidden)]
pub use imports::Imported;
#[doc(hidden)]
pub use retention::RETENTION_ACTOR;
#[doc(hidden)]
pub use sweep::sweep_hourly;
