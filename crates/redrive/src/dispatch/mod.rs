//! Dispatch without I/O: what to take, whom to start, what to settle. Clock, randomness and threads are arguments or
//! elsewhere, so that a simulation can drive the same code.

mod apart;
pub mod calls;
mod ends;
pub mod failed;
pub mod health;
pub mod incident;
mod intake;
mod kept;
pub mod machine;
pub mod permits;
pub mod protection;
mod resets;
pub mod routes;
mod routing;
mod settling;
mod shared_wait;
pub mod steering;
mod suspected;
mod sweep;
mod unconfirmed;
mod waiting;

pub use calls::CallId;
pub use failed::{AttemptFailed, Decided};
pub use health::{EndpointFigures, HealthChange, HealthChanged, HealthEntry, HealthFigures};
pub use incident::Incident;
pub use machine::{Ended, Machine, Parked, Start, Tally, Views};
pub use permits::{Permit, Permits};
pub use protection::{BreakerOrder, Protection, ProtectionSettings};
pub use resets::ResetFigures;
pub use shared_wait::AskedWait;
pub use steering::{BreakerAnswer, Withdrawn};
