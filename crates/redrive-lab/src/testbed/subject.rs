//! The settings under test.

use redrive::internal::dispatch::routes::Router;
use redrive::{BreakerSettings, DeliveryOrder, Policy};

/// The pipeline settings of a scenario. The dead-letter guard is off: scenarios park many messages on purpose.
#[derive(Clone, Debug)]
pub struct Subject {
    pub policy: Policy,
    pub ordering: DeliveryOrder,
    pub breaker: BreakerSettings,
    /// Concurrent calls per partition.
    pub concurrency: u32,
    /// Assigns endpoints to messages, if they have any. Only supported in virtual runs.
    pub router: Option<Router>,
}

impl Subject {
    /// Without a breaker and without key order.
    pub fn plain(policy: Policy, concurrency: u32) -> Self {
        let (ordering, breaker) = (DeliveryOrder::None, BreakerSettings::off());
        Self { policy, ordering, breaker, concurrency, router: None }
    }
}
