//! Dispatch without I/O: decides what to take, start and settle. Clock, randomness and threads are arguments or live
//! elsewhere, so that a simulation can run the same code.

mod attempts;
pub mod calls;
pub mod failed;
pub mod health;
pub mod incident;
pub mod key_successes;
pub mod machine;
mod meters;
pub mod permits;
pub mod protection;
mod resets;
pub mod routes;
mod saved_endpoints;
mod saved_health;
mod shared_wait;
mod suspect_queue;
mod sweep;
mod unconfirmed;
mod verdicts;

pub use calls::{CallId, Withdrawn};
pub use failed::{AttemptFailed, Decided};
pub use health::{EndpointFigures, HealthChange, HealthChanged, HealthEntry, HealthFigures};
pub use incident::Incident;
pub use key_successes::KeySuccesses;
pub use machine::{BreakerAnswer, Ended, Machine, Start, Views};
pub use meters::Tally;
pub use permits::{Permit, Permits};
pub use protection::{BreakerOrder, Protection, ProtectionSettings};
pub use resets::ResetFigures;
pub use shared_wait::AskedWait;
pub use verdicts::Parked;
