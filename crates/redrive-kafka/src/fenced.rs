//! A member that the group takes for replaced. It may have been replaced by itself: its answer was lost when the broker was
//! restarted, and it asked again under the number it had before. So it joins again, and believes in another process of its
//! name only when it is replaced again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use crate::desk::Desk;
use crate::mailbox::Mailbox;

pub(crate) const JOIN_AGAIN_AFTER: Duration = Duration::from_secs(3);
/// Replaced so often within this span, it was by another process.
const FENCED_MAX: usize = 3;
const FENCED_WITHIN: Duration = Duration::from_mins(1);

/// When the group took this member for replaced, and when it joins again.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    times: Vec<Instant>,
    /// The consumer is of no use any more until then.
    pub(crate) joining_at: Option<Instant>,
}

impl Fenced {
    /// Whether it has to be believed now.
    pub(crate) fn again(&mut self, now: Instant) -> bool {
        self.times.retain(|at| now.duration_since(*at) < FENCED_WITHIN);
        self.times.push(now);
        self.times.len() >= FENCED_MAX
    }
}

/// A consumer that joins the group and calls the polling thread when there is something for it.
pub(crate) fn join(
    config: &ClientConfig,
    topics: &[String],
    mailbox: &Arc<Mailbox>,
) -> Result<Arc<BaseConsumer<Desk>>, KafkaError> {
    let mut consumer: BaseConsumer<Desk> = config.create_with_context(Desk::default())?;
    let bell = Arc::clone(mailbox);
    consumer.set_nonempty_callback(move || bell.call_reader());
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics)?;
    Ok(Arc::new(consumer))
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
}
