//! Topics from outside: creates and removes them, reads their offsets and a group's progress.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::Error;

/// A broker on the same machine responds within this time even when it is busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A topic to create.
#[derive(Clone, Copy, Debug)]
pub struct Topic<'a> {
    pub name: &'a str,
    pub partitions: i32,
    pub settings: &'a [(&'a str, &'a str)],
}

/// Creates topics with a replication factor of 1 and returns once they are visible: a busy broker confirms a topic
/// some time before it lists it.
pub fn create(brokers: &str, topics: &[Topic<'_>]) -> Result<(), Error> {
    let wanted = topics.iter().map(|topic| {
        let new = NewTopic::new(topic.name, topic.partitions, TopicReplication::Fixed(1));
        topic.settings.iter().fold(new, |new, (name, value)| new.set(name, value))
    });
    let wanted: Vec<_> = wanted.collect();
    let made = waiting(admin(brokers)?.create_topics(&wanted, &options()))??;
    made.into_iter().try_for_each(|made| match made {
        Ok(_) => Ok(()),
        Err((name, code)) => Err(Error::from(format!("topic {name} cannot be made: {code}"))),
    })?;
    let (looking, began) = (looking(brokers, "redrive-lab-look")?, Instant::now());
    let is_seen = |topic: &Topic<'_>| -> Result<bool, Error> {
        let metadata = looking.fetch_metadata(Some(topic.name), PATIENCE)?;
        let seen = metadata
            .topics()
            .first()
            .map_or(0, |seen| seen.partitions().iter().filter(|partition| partition.leader() >= 0).count());
        Ok(seen == topic.partitions as usize)
    };
    for topic in topics {
        while !is_seen(topic)? {
            if began.elapsed() > PATIENCE {
                return Err(format!("topic {} was made and is not shown", topic.name).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Removes topics; ignores missing ones.
pub fn delete(brokers: &str, names: &[&str]) -> Result<(), Error> {
    let gone = waiting(admin(brokers)?.delete_topics(names, &options()))??;
    gone.into_iter().try_for_each(|gone| match gone {
        Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => Ok(()),
        Err((name, code)) => Err(format!("topic {name} cannot be removed: {code}").into()),
    })
}

/// Names of all topics that begin with `prefix`.
pub fn beginning_with(brokers: &str, prefix: &str) -> Result<Vec<String>, Error> {
    let metadata = looking(brokers, "redrive-lab-look")?.fetch_metadata(None, PATIENCE)?;
    let names = metadata.topics().iter().map(|topic| topic.name().to_owned());
    Ok(names.filter(|name| name.starts_with(prefix)).collect())
}

/// The topics of one run: its own, and those whose names are derived from it. `run-10` does not belong to `run-1`.
pub fn of_run(brokers: &str, name: &str) -> Result<Vec<String>, Error> {
    let mut found = beginning_with(brokers, name)?;
    found.retain(|topic| is_of_run(topic, name));
    Ok(found)
}

fn is_of_run(topic: &str, name: &str) -> bool {
    topic.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
}

/// First and next offset of each partition.
pub fn reach(brokers: &str, topic: &str) -> Result<Vec<(i64, i64)>, Error> {
    reach_by(&looking(brokers, "redrive-lab-look")?, topic)
}

fn reach_by(consumer: &BaseConsumer, topic: &str) -> Result<Vec<(i64, i64)>, Error> {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    let partitions = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
    (0..).take(partitions).map(|partition| marks(consumer, topic, partition)).collect()
}

/// First and next offset of one partition. Retries, because a client may learn of a topic before it learns of all its
/// partitions.
fn marks(consumer: &BaseConsumer, topic: &str, partition: i32) -> Result<(i64, i64), Error> {
    let began = Instant::now();
    loop {
        match consumer.fetch_watermarks(topic, partition, PATIENCE) {
            Err(error) if is_not_known_yet(&error) && began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            found => return Ok(found?),
        }
    }
}

fn is_not_known_yet(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{
        LeaderNotAvailable, NotLeaderForPartition, UnknownPartition, UnknownTopic, UnknownTopicOrPartition,
    };
    // A broker that was unresponsive for a while may be asked before it leads its partitions again.
    let is_led = !matches!(error.rdkafka_error_code(), Some(LeaderNotAvailable | NotLeaderForPartition));
    let is_known = !matches!(
        error.rdkafka_error_code(),
        Some(UnknownPartition | UnknownTopic | UnknownTopicOrPartition)
    );
    !(is_led && is_known)
}

/// Observes the lag of a group without being a member.
pub struct Lag {
    consumer: BaseConsumer,
    topic: String,
}

impl std::fmt::Debug for Lag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lag").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// Offsets of topic and group, summed over all partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicProgress {
    /// Records that were ever written.
    pub written: i64,
    /// Records before the committed offsets.
    pub committed: i64,
}

impl TopicProgress {
    pub fn lag(self) -> i64 {
        self.written - self.committed
    }
}

impl Lag {
    pub fn of(brokers: &str, group: &str, topic: &str) -> Result<Self, Error> {
        Ok(Self { consumer: looking(brokers, group)?, topic: topic.to_owned() })
    }

    /// Reads the current progress. A partition without a committed offset counts from its first record.
    pub fn look(&self) -> Result<TopicProgress, Error> {
        let reach = reach_by(&self.consumer, &self.topic)?;
        let mut asked = TopicPartitionList::new();
        for (partition, _) in (0..).zip(&reach) {
            asked.add_partition(&self.topic, partition);
        }
        let answered = self.consumer.committed_offsets(asked, PATIENCE)?;
        let mut progress = TopicProgress { written: 0, committed: 0 };
        for element in answered.elements() {
            let (low, high) = reach[element.partition() as usize];
            progress.written += high;
            progress.committed += match element.offset() {
                Offset::Offset(offset) => offset,
                _ => low,
            };
        }
        Ok(progress)
    }
}

fn looking(brokers: &str, group: &str) -> Result<BaseConsumer, Error> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", group).set("enable.auto.commit", "false");
    Ok(config.create()?)
}

fn admin(brokers: &str) -> Result<AdminClient<DefaultClientContext>, Error> {
    Ok(ClientConfig::new().set("bootstrap.servers", brokers).create()?)
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE))
}

fn waiting<T>(answer: impl Future<Output = T>) -> Result<T, Error> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: concurrent runs removed each other's topics, because the prefix of one matched another's.
    #[test]
    fn a_run_does_not_take_the_topics_of_another_for_its_own() {
        for own in ["lab-7-1", "lab-7-1.retry.5s", "lab-7-1.DLQ", "lab-7-1-connecting"] {
            assert!(is_of_run(own, "lab-7-1"), "{own}");
        }
        for other in ["lab-7-10", "lab-7-10.DLQ", "lab-7", "orders"] {
            assert!(!is_of_run(other, "lab-7-1"), "{other}");
        }
    }
}
