//! The endpoints of a sink that has one per message: which of them fail, sent a Retry-After, are busy, or have reached
//! their rate.
//!
//! One customer's endpoint that is down must not stop all others, so its messages are deferred and nothing else is
//! gated. There may be millions of endpoints: only the latest ones that failed are remembered.
//!
//! - `call`: destination, request and result of a call; `tenant_outcomes`: which tenants count for an origin
//! - `troubled`: breaker and Retry-After of each endpoint or origin that failed; `saved_cooldown`: the part that
//!   survives a restart
//! - `limits`: all limits together, with concurrency and rate; `waits`: which endpoints wait, and why

mod call;
mod limits;
mod saved_cooldown;
mod tenant_outcomes;
mod troubled;
mod waits;

pub use call::{Asking, Contact, Endpoint, EndpointCall, Passage, counts_as};
pub use limits::Endpoints;
pub use saved_cooldown::{Cooldown, KEPT_MAX};
pub use troubled::REMEMBERED_MAX;
pub use waits::{EndpointWait, LimitBy, Unit, WaitList, WaitReason};
