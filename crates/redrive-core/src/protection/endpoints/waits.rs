//! Which endpoints keep their messages waiting, and why: for people, so the list is bounded.

use std::cmp::Reverse;

use crate::Time;

/// What limits and breakers count together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitBy {
    /// Messages to one endpoint.
    #[default]
    Endpoint,
    /// Messages of one tenant; those without one are one tenant.
    Tenant,
    /// Messages with one key; those without one are one key.
    Key,
}

impl LimitBy {
    /// The name in figures and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Tenant => "tenant",
            Self::Key => "key",
        }
    }
}

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// What limits count together: an endpoint, tenant or key.
    Endpoint,
    /// Scheme, host and port.
    Origin,
}

impl Unit {
    /// In the words of a sink that limits by this.
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
    /// It is reserved for one message that may have made it close connections.
    Isolation,
    /// It was called as often as its rate allows.
    Rate,
    /// As many calls run there as may.
    Concurrency,
}

impl WaitReason {
    /// All reasons, the most serious first.
    pub const ALL: [Self; 5] =
        [Self::Breaker, Self::RetryAfter, Self::Isolation, Self::Rate, Self::Concurrency];

    /// The name in figures and in the API.
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
    /// Which one.
    pub number: u64,
    /// What its messages wait for.
    pub why: WaitReason,
    /// When the next message may go; with [`WaitReason::Rate`], the last of those that have their turn. `None` where
    /// that depends on calls that run.
    pub until: Option<Time>,
    /// Failed probes so far, with [`WaitReason::Breaker`].
    pub rounds: u32,
    /// Messages that wait in memory; others wait in the store.
    pub queued: u64,
}

impl EndpointWait {
    /// The smallest is the most serious.
    fn rank(&self) -> impl Ord + use<> {
        let Self { unit, number, why, until, rounds, queued } = *self;
        (why, Reverse(rounds), Reverse(until), Reverse(queued), unit, number)
    }
}

/// Counts all waits and holds the most serious of them.
#[derive(Clone, Debug)]
pub struct WaitList {
    max: usize,
    total: u64,
    held: Vec<EndpointWait>,
}

impl WaitList {
    /// A list that holds up to `max` waits.
    pub fn new(max: usize) -> Self {
        Self { max: max.max(1), total: 0, held: Vec::new() }
    }

    /// Counts a wait, and holds it if it is among the most serious.
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

    /// How many there are, and the most serious of them, in order.
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
