//! What to do with failures: settings as given, the one validator, and the policy that passed it.
//!
//! [`PolicySettings`] holds what a configuration file or the [`PolicyBuilder`] sets, on top of a profile. `resolve` checks
//! all of it and reports every fault at once; a [`Policy`] exists only if it passed.

mod builder;
mod by_name;
mod check;
mod delays;
mod faults;
mod given;
pub mod profiles;
mod rules;
mod scalars;
mod settings;
mod validate;

pub use builder::PolicyBuilder;
pub use by_name::{SCALARS, ScalarKind, ScalarSetting, ScalarValue};
pub use check::limits;
pub use faults::{PolicyFault, PolicyFaults, PolicyWarning};
pub use given::{Given, Word};
pub use rules::{BudgetRate, Mode, OnExhausted, Policy};
pub use settings::{BackoffSettings, BudgetSettings, CrashSettings, PolicySettings};
