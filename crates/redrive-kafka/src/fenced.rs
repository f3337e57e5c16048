//! A member that the group takes for replaced. It may have been replaced by itself: its answer was lost when the broker was
//! restarted, and it asked again under the number it had before. So it joins again, and believes in another process of its
//! name only when it is replaced again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use crate::committer::Committer;
use crate::desk::Desk;
use crate::mailbox::{Mailbox, Note};
use crate::poll::Polling;

const JOIN_AGAIN_AFTER: Duration = Duration::from_secs(3);
/// Replaced so often within this span, it was by another process.
const FENCED_MAX: usize = 3;
const FENCED_WITHIN: Duration = Duration::from_mins(1);

/// When the group took this member for replaced, and when it joins again.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    times: Vec<Instant>,
    /// The consumer is of no use any more until then.
    joining_at: Option<Instant>,
}

impl Fenced {
    /// Whether it has to be believed now.
    fn again(&mut self, now: Instant) -> bool {
        self.times.retain(|at| now.duration_since(*at) < FENCED_WITHIN);
        self.times.push(now);
        self.times.len() >= FENCED_MAX
    }
}

impl Polling {
    /// Whether the member is out of its group for now, so that there is nothing to poll.
    pub(crate) fn is_out(&mut self) -> bool {
        match self.fenced.joining_at {
            None => false,
            Some(at) => {
                if Instant::now() >= at {
                    self.join_again();
                }
                true
            }
        }
    }

    /// The group has replaced this member. Whether by another process: then there is no way back.
    pub(crate) fn was_replaced(&mut self) -> bool {
        let now = Instant::now();
        if self.fenced.joining_at.is_some() {
            return false;
        }
        if self.fenced.again(now) {
            return true;
        }
        tracing::warn!("the group has replaced this member; it joins again in a moment");
        self.fenced.joining_at = Some(now + JOIN_AGAIN_AFTER);
        // They are somebody else's already: there is nothing to drain and nothing to commit.
        self.assigning = None;
        self.releasing = None;
        self.committing = None;
        self.lanes.clear();
        self.mailbox.tell(Note::Gone { epoch: self.epoch });
        false
    }

    /// A consumer after a fatal error is of no use; another one takes its place.
    fn join_again(&mut self) {
        let joined = join(&self.config, &self.topics, &self.mailbox)
            .and_then(|consumer| Ok((Committer::start(&consumer, &self.mailbox)?, consumer)));
        match joined {
            Ok((committer, consumer)) => {
                self.consumer.context().close();
                let old = std::mem::replace(&mut self.consumer, consumer);
                let mut commits = std::mem::replace(&mut self.committer, committer);
                // Its end waits for its threads.
                std::thread::spawn(move || {
                    commits.end();
                    drop(old);
                });
                self.fenced.joining_at = None;
            }
            Err(error) => {
                tracing::warn!(%error, "the group cannot be joined again yet");
                self.fenced.joining_at = Some(Instant::now() + JOIN_AGAIN_AFTER);
            }
        }
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
