//! Whether this process is still a member of its group, and how it joins.
//!
//! - Handles FENCED_INSTANCE_ID. The fence may be self-inflicted: an answer was lost when the broker restarted, and the member
//!   asked again under its old id. So rejoin, and give up after three in a minute.
//! - Detects a librdkafka client stuck with an empty broker list. It never recovers, so recreate it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use crate::consume::callbacks::ConsumerCallbacks;
use crate::consume::mailbox::Mailbox;

pub(crate) const JOIN_AGAIN_AFTER: Duration = Duration::from_secs(3);
/// A member that is fenced this often within a minute was replaced by another process.
const FENCED_MAX: usize = 3;
const FENCED_WITHIN: Duration = Duration::from_mins(1);

/// When the group fenced this member, and when it rejoins.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    times: Vec<Instant>,
    /// When to rejoin; the consumer is useless until then.
    pub(crate) joining_at: Option<Instant>,
}

impl Fenced {
    /// Notes a fence. Returns whether it has to be believed now.
    pub(crate) fn again(&mut self, now: Instant) -> bool {
        self.times.retain(|at| now.duration_since(*at) < FENCED_WITHIN);
        self.times.push(now);
        self.times.len() >= FENCED_MAX
    }
}

/// Creates a consumer that joins the group and wakes the polling thread when it has events.
pub(crate) fn join(
    config: &ClientConfig,
    topics: &[String],
    mailbox: &Arc<Mailbox>,
) -> Result<Arc<BaseConsumer<ConsumerCallbacks>>, KafkaError> {
    let mut consumer: BaseConsumer<ConsumerCallbacks> =
        config.create_with_context(ConsumerCallbacks::default())?;
    let bell = Arc::clone(mailbox);
    consumer.set_nonempty_callback(move || bell.call_reader());
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics)?;
    Ok(Arc::new(consumer))
}

/// Since when a client has been outside its group.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    since: Option<Instant>,
}

/// A group may take a while to form, because others finish their work first. After this time a client will not recover
/// by itself.
pub(crate) const ABSENT_MAX: Duration = Duration::from_mins(2);
pub(crate) const UNANSWERED_MAX: Duration = Duration::from_secs(30);

impl Absent {
    /// Whether the client has to be replaced.
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
    fn being_replaced_is_believed_when_it_happens_again_and_again() {
        let (mut fenced, now) = (Fenced::default(), Instant::now());
        assert!(!fenced.again(now));
        assert!(!fenced.again(now + Duration::from_secs(5)));
        assert!(fenced.again(now + Duration::from_secs(10)), "three times within a minute");
        let mut rarely = Fenced::default();
        assert!((0..5).all(|hour| !rarely.again(now + Duration::from_hours(hour))));
    }

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
