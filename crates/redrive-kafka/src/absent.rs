//! A client that has lost its way: one of librdkafka that was once told of no brokers at all never asks again, so another
//! one has to take its place.

use std::time::{Duration, Instant};

/// Since when a client is in no group though it should be.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    since: Option<Instant>,
}

/// A group may take a while to form: others finish their work first. Beyond this a client does not find its way back.
pub(crate) const ABSENT_MAX: Duration = Duration::from_mins(2);
pub(crate) const UNANSWERED_MAX: Duration = Duration::from_secs(30);

impl Absent {
    /// Whether another client has to take its place.
    pub(crate) fn for_too_long(&mut self, is_member: bool, patience: Duration, now: Instant) -> bool {
        if is_member {
            self.since = None;
            return false;
        }
        let too_long = now.duration_since(*self.since.get_or_insert(now)) >= patience;
        if too_long {
            self.since = None;
        }
        too_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_no_group_for_long_is_replaced_once_in_a_while() {
        let (mut absent, now) = (Absent::default(), Instant::now());
        let mut at = |is_member, seconds| {
            absent.for_too_long(is_member, ABSENT_MAX, now + Duration::from_secs(seconds))
        };
        assert!(!at(false, 0) && !at(true, 100) && !at(false, 119) && !at(false, 238));
        assert!(at(false, 239) && !at(false, 240) && !at(false, 300) && at(false, 360));
    }
}
