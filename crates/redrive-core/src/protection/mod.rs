//! Protects a sink from too many calls and people from too many dead letters: breaker, pacing, retry budget, guard.

pub mod blocked_spans;
pub mod breaker;
pub mod budget;
pub mod endpoints;
pub mod failure_kind;
pub mod guard;
pub mod pace;
pub mod pulse;
pub mod ramp;
pub mod reload;
pub mod suspects;
pub mod window;
