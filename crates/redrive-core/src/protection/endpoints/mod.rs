//! The endpoints of a sink that has one per message: which of them fails, sent a Retry-After, is busy, or was called as
//! often as it may be.
//!
//! One customer's endpoint that is down must not stop all others, so its messages are deferred and nothing else is gated. There
//! may be millions of endpoints: only those that have failed are remembered, and of these the latest.
//!
//! - `call`: where a message goes, what it asks, how its call ended; `tenant_outcomes`: who counts for an origin
//! - `troubled`: breaker and Retry-After of each endpoint or origin that failed; `saved_cooldown`: what of it survives a restart
//! - `limits`: the whole, with concurrency and rate; `waits`: which endpoints wait, and why

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
