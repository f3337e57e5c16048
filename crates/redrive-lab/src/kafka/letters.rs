//! Reads a dead-letter topic like any consumer.

use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::topics::{PATIENCE, reach};
use super::{Error, orders};
use crate::mark::Marked;
use crate::testbed::letters::number_of;

/// One record of a dead-letter topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterRecord {
    pub order: u64,
    /// The header `x-attempts`; 0 if it is missing.
    pub attempts: u32,
    /// The header `x-crashes`; 0 if it is missing.
    pub crashes: u32,
    /// Whether its header `x-reason` says poison pill.
    pub is_pill: bool,
}

/// Reads all records up to the current end.
pub fn read(brokers: &str, topic: &str) -> Result<Vec<LetterRecord>, Error> {
    read_with(brokers, topic, letter)
}

/// The numbers of the messages of the run with this seed, once per letter.
pub fn numbers(brokers: &str, topic: &str, of_seed: u64) -> Result<Vec<u64>, Error> {
    read_with(brokers, topic, |record| {
        let id = record.payload().and_then(|payload| Marked::read(payload).order_id).unwrap_or_default();
        Ok(number_of(&id, of_seed))
    })
}

fn read_with<T>(
    brokers: &str,
    topic: &str,
    wanted: impl Fn(&BorrowedMessage<'_>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let reach = reach(brokers, topic)?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", "redrive-lab-audit");
    config.set("enable.auto.commit", "false").set("enable.partition.eof", "true");
    config.set("auto.offset.reset", "earliest").set("isolation.level", "read_committed");
    let consumer: BaseConsumer = config.create()?;
    let mut places = TopicPartitionList::new();
    let mut open = 0;
    for (partition, (low, high)) in (0..).zip(&reach) {
        if low < high {
            places.add_partition_offset(topic, partition, Offset::Offset(*low))?;
            open += 1;
        }
    }
    consumer.assign(&places)?;
    let (mut letters, mut last) = (Vec::new(), Instant::now());
    while open > 0 {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(record)) => {
                last = Instant::now();
                letters.push(wanted(&record)?);
            }
            // The end of a partition, even if its last offset is an invisible transaction marker.
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => return Err(error.into()),
            None if last.elapsed() > PATIENCE => return Err(format!("{topic} is not readable").into()),
            None => {}
        }
    }
    Ok(letters)
}

fn letter(record: &BorrowedMessage<'_>) -> Result<LetterRecord, Error> {
    let order = record.payload().and_then(orders::number).ok_or("a letter is no order of the workload")?;
    let text = |name: &str| {
        let named = record.headers().into_iter().flat_map(Headers::iter).filter(|header| header.key == name);
        named.filter_map(|header| std::str::from_utf8(header.value?).ok()).last()
    };
    let number = |name: &str| text(name).and_then(|value| value.parse().ok()).unwrap_or(0);
    let is_pill = text("x-reason") == Some("poison_pill");
    Ok(LetterRecord { order, attempts: number("x-attempts"), crashes: number("x-crashes"), is_pill })
}
