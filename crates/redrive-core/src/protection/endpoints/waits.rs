//! The endpoints whose messages wait, and why. For display, so the list is bounded.

use std::cmp::Reverse;

use crate::Time;

/// The unit that limits and breakers apply to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitBy {
    /// Messages to one endpoint.
    #[default]
    Endpoint,
    /// Messages of one tenant; those without a tenant count as one tenant.
    Tenant,
    /// Messages with one key; those without a key count as one key.
    Key,
}

impl LimitBy {
    /// The name in metrics and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Tenant => "tenant",
            Self::Key => "key",
        }
    }
}

/// The kind of unit that a number identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// The unit that limits apply to: an endpoint, tenant or key.
    Endpoint,
    /// Scheme, host and port.
    Origin,
}

impl Unit {
    /// The name in the terms of a sink that limits by `limit_by`.
    pub const fn name(self, limit_by: LimitBy) -> &'static str {
        match self {
            Self::Endpoint => limit_by.name(),
            Self::Origin => "origin",
        }
    }
}

/// Why messages wait, the most serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitReason {
    /// It failed too often; one probe goes after the cooldown.
    Breaker,
    /// It sent a Retry-After.
    RetryAfter,
    /// It is reserved for one message that may have caused it to close connections.
    Isolation,
    /// It has reached its rate.
    Rate,
    /// It has as many running calls as allowed.
    Concurrency,
}

impl WaitReason {
    /// All reasons, the most serious first.
    pub const ALL: [Self; 5] =
        [Self::Breaker, Self::RetryAfter, Self::Isolation, Self::Rate, Self::Concurrency];

    /// The name in metrics and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Breaker => "breaker",
            Self::RetryAfter => "retry_after",
            Self::Isolation => "isolation",
            Self::Rate => "rate",
            Self::Concurrency => "concurrency",
        }
    }
}

/// One endpoint or origin whose messages wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointWait {
    /// Endpoint or origin.
    pub unit: Unit,
    /// Its number.
    pub number: u64,
    /// Why its messages wait.
    pub why: WaitReason,
    /// When the next message may go; with [`WaitReason::Rate`], when the last waiting message may. `None` if that
    /// depends on running calls.
    pub until: Option<Time>,
    /// Failed probes so far, with [`WaitReason::Breaker`].
    pub rounds: u32,
    /// Messages waiting in memory; others wait in the store.
    pub queued: u64,
}

impl EndpointWait {
    /// The sort key: the smallest is the most serious.
    fn rank(&self) -> impl Ord + use<> {
        let Self { unit, number, why, until, rounds, queued } = *self;
        (why, Reverse(rounds), Reverse(until), Reverse(queued), unit, number)
    }
}

/// Counts all waits and keeps the most serious ones.
#[derive(Clone, Debug)]
pub struct WaitList {
    max: usize,
    total: u64,
    held: Vec<EndpointWait>,
}

impl WaitList {
    /// Creates a list that keeps up to `max` waits.
    pub fn new(max: usize) -> Self {
        Self { max: max.max(1), total: 0, held: Vec::new() }
    }

    /// Counts a wait, and keeps it if it is among the most serious.
    pub fn push(&mut self, wait: EndpointWait) {
        self.total += 1;
        self.held.push(wait);
        if self.held.len() >= self.max * 4 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.held.sort_unstable_by_key(EndpointWait::rank);
        self.held.truncate(self.max);
    }

    /// The number of waits, and the most serious of them in order.
    pub fn finish(mut self) -> (u64, Vec<EndpointWait>) {
        self.cut();
        (self.total, self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(number: u64, why: WaitReason, rounds: u32) -> EndpointWait {
        EndpointWait { unit: Unit::Endpoint, number, why, until: None, rounds, queued: 0 }
    }

    #[test]
    fn of_many_waits_all_are_counted_and_the_most_serious_are_held() {
        let mut list = WaitList::new(3);
        (0..100_000).for_each(|number| list.push(wait(number, WaitReason::Concurrency, 0)));
        list.push(wait(1, WaitReason::Rate, 0));
        list.push(wait(2, WaitReason::Breaker, 1));
        list.push(wait(3, WaitReason::Breaker, 7));
        (0..100_000).for_each(|number| list.push(wait(number, WaitReason::Concurrency, 0)));
        assert!(list.held.len() < 12);
        let (total, held) = list.finish();
        assert_eq!(total, 200_003);
        let held: Vec<_> = held.iter().map(|wait| (wait.number, wait.why)).collect();
        let [breaker, rate] = [WaitReason::Breaker, WaitReason::Rate];
        assert_eq!(held, [(3, breaker), (2, breaker), (1, rate)]);
    }
}
