//! The settings under test.

use redrive::{BreakerSettings, Ordering, Policy};

/// One pipeline as a scenario sets it. The dead-letter guard is off: scenarios park many messages on purpose.
#[derive(Clone, Debug)]
pub struct Subject {
    pub policy: Policy,
    pub ordering: Ordering,
    pub breaker: BreakerSettings,
    /// Calls that may run at once, per partition.
    pub concurrency: u32,
}

impl Subject {
    /// Without a breaker and without key order.
    pub fn plain(policy: Policy, concurrency: u32) -> Self {
        Self { policy, ordering: Ordering::None, breaker: BreakerSettings::off(), concurrency }
    }
}
