//! The circuit breaker of a sink.

mod circuit;
mod later_attempts;
mod settings;

pub use circuit::{Breaker, BreakerChange, BreakerState, BreakerView, Cause, Retried, Sign, StillOpen};
pub use settings::{BreakerSettings, FastWindow, SlowAction, SlowWindow};
