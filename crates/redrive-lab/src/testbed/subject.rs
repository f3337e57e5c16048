//! The settings under test.

use redrive::internal::dispatch::routes::Router;
use redrive::{BreakerSettings, DeliveryOrder, Policy};

/// One pipeline as a scenario sets it. The dead-letter guard is off: scenarios park many messages on purpose.
#[derive(Clone, Debug)]
pub struct Subject {
    pub policy: Policy,
    pub ordering: DeliveryOrder,
    pub breaker: BreakerSettings,
    /// Calls that may run at once, per partition.
    pub concurrency: u32,
    /// Where messages go, if each has an endpoint. Only virtual runs know it.
    pub router: Option<Router>,
}

impl Subject {
    /// Without a breaker and without key order.
    pub fn plain(policy: Policy, concurrency: u32) -> Self {
        let (ordering, breaker) = (DeliveryOrder::None, BreakerSettings::off());
        Self { policy, ordering, breaker, concurrency, router: None }
    }
}
