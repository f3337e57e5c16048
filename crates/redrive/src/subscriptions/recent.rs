//! Endpoints that this process called lately, so that an operator can name an active one by its hash. A hash that was
//! never seen is more likely a typing error.

use std::collections::HashSet;

use super::record::EndpointId;

/// At least this many of the latest endpoints are remembered, and at most twice as many.
const REMEMBERED_MIN: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct RecentCalls {
    current: HashSet<EndpointId>,
    previous: HashSet<EndpointId>,
}

impl RecentCalls {
    pub(super) fn add(&mut self, endpoint: EndpointId) {
        if self.current.len() >= REMEMBERED_MIN && !self.current.contains(&endpoint) {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(endpoint);
    }

    pub(super) fn contains(&self, endpoint: EndpointId) -> bool {
        self.current.contains(&endpoint) || self.previous.contains(&endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_the_oldest_forgotten() {
        let mut recent = RecentCalls::default();
        let id = |number: usize| EndpointId::from_number(number as u64);
        (0..3 * REMEMBERED_MIN).for_each(|number| recent.add(id(number)));
        assert!(recent.contains(id(3 * REMEMBERED_MIN - 1)) && recent.contains(id(2 * REMEMBERED_MIN)));
        assert!(!recent.contains(id(0)) && !recent.contains(id(3 * REMEMBERED_MIN)));
        assert!(recent.current.len() + recent.previous.len() <= 2 * REMEMBERED_MIN);
    }
}
