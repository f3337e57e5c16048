//! Shared by the proofs: a world of topics and a trace, members of its group, and a continuous load.

mod flow;
mod member;
mod world;

pub(crate) use flow::Flow;
pub(crate) use member::{Member, Signal};
pub(crate) use world::{SESSION, World, own_broker, root};

use std::time::{Duration, Instant};

/// Nothing that a test waits for takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

/// Returns a number from the environment, or the default.
pub(crate) fn often(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Waits for a condition; `what` names it if it never holds.
pub(crate) fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "waited {} s in vain: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
