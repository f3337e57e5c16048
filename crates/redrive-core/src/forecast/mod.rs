//! What a policy implies, computed before anything runs.

pub mod budget;
pub mod outage;
mod policy;
pub mod recovery;

pub use policy::*;
