//! Reads topics from outside the group: where their partitions begin and end, what is committed, and the records in
//! between. For queries; the engine reads by other means.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message as _, Offset, TopicPartitionList};
use redrive::internal::engine::EngineError;
use redrive_core::Time;

use crate::Cluster;
use crate::client::reach;
use crate::commit::progress::CommitNote;

const WAIT: Duration = Duration::from_secs(10);
/// How long a group may be without a coordinator.
const COORDINATOR_MAX: Duration = Duration::from_secs(30);
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// A partition from which nothing comes for this long counts as unreachable.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// One partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub topic: String,
    pub partition: i32,
    /// The first record that still exists.
    pub low: i64,
    /// The offset of the next record.
    pub end: i64,
    /// The group's committed offset.
    pub committed: Option<i64>,
}

impl Span {
    /// Returns how many offsets are not known to be settled. This is no count of records: some offsets have none.
    pub fn lag(&self) -> i64 {
        (self.end - self.committed.unwrap_or(self.low).max(self.low)).max(0)
    }
}

/// Queries a cluster. It is not a member of the group and changes nothing.
pub struct Scan {
    cluster: Cluster,
    consumer: BaseConsumer,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Scan {
    pub fn new(cluster: &Cluster) -> Result<Self, EngineError> {
        let consumer = cluster.reader().create().map_err(|error| unavailable(cluster, &error))?;
        Ok(Self { cluster: cluster.clone(), consumer })
    }

    /// Returns the partitions of a topic with what the group has committed; none if there is no such topic.
    pub fn spans(&self, topic: &str) -> Result<Vec<Span>, EngineError> {
        let mut spans = self.bounds(topic)?;
        if spans.is_empty() {
            return Ok(spans);
        }
        let mut list = TopicPartitionList::new();
        for span in &spans {
            list.add_partition(topic, span.partition);
        }
        let committed =
            committed(&self.consumer, &list).map_err(|error| unavailable(&self.cluster, &error))?;
        for span in &mut spans {
            let place = committed.find_partition(topic, span.partition);
            if let Some(Offset::Offset(offset)) = place.map(|found| found.offset()) {
                span.committed = Some(offset);
            }
        }
        Ok(spans)
    }

    /// Like [`Self::spans`], without committed offsets. Does not query a group.
    pub fn bounds(&self, topic: &str) -> Result<Vec<Span>, EngineError> {
        // Asking for a topic by name might create it.
        let metadata = reach::metadata(&self.cluster, |wait| self.consumer.fetch_metadata(None, wait))
            .map_err(|unreached| unreached.of(&self.cluster))?;
        let partitions =
            metadata.topics().iter().find(|one| one.name() == topic).map_or(0, |one| one.partitions().len());
        let span = |partition: i32| {
            let (low, end) = self.watermarks(topic, partition)?;
            Ok(Span { topic: topic.to_owned(), partition, low, end, committed: None })
        };
        let spans: Result<Vec<_>, KafkaError> =
            (0..partitions).map(|partition| span(i32::try_from(partition).unwrap_or(i32::MAX))).collect();
        spans.map_err(|error| unavailable(&self.cluster, &error))
    }

    /// Returns where a partition begins and ends. Right after it was created or moved, it may have no leader that
    /// answers.
    fn watermarks(&self, topic: &str, partition: i32) -> Result<(i64, i64), KafkaError> {
        let until = Instant::now() + WAIT;
        loop {
            match self.consumer.fetch_watermarks(topic, partition, WAIT) {
                Err(error) if is_moving(&error) && Instant::now() < until => std::thread::sleep(AGAIN_AFTER),
                answer => return answer,
            }
        }
    }

    /// Returns how many messages of these partitions were being delivered when their owners last committed, a moment
    /// ago at most.
    pub fn in_flight(&self, assigned: &[(String, Vec<i32>)]) -> Result<u64, EngineError> {
        let mut list = TopicPartitionList::new();
        for (topic, partitions) in assigned {
            for partition in partitions {
                list.add_partition(topic, *partition);
            }
        }
        if list.count() == 0 {
            return Ok(0);
        }
        let committed = committed(&self.consumer, &list);
        let committed = committed.map_err(|error| unavailable(&self.cluster, &error))?;
        let elements = committed.elements();
        let out = elements.iter().map(|place| CommitNote::read(place.metadata(), 0).out);
        Ok(out.sum())
    }

    /// Narrows spans to the records from `since` on and before `until`, by the timestamps that their producers or the
    /// broker gave them.
    pub fn within(
        &self,
        spans: &[Span],
        since: Option<Time>,
        until: Option<Time>,
    ) -> Result<Vec<Span>, EngineError> {
        let mut within = spans.to_vec();
        if let Some(since) = since {
            for (span, offset) in within.iter_mut().zip(self.first_from(spans, since)?) {
                span.low = offset.max(span.low);
            }
        }
        if let Some(until) = until {
            for (span, offset) in within.iter_mut().zip(self.first_from(spans, until)?) {
                span.end = offset.min(span.end).max(span.low);
            }
        }
        Ok(within)
    }

    /// Returns the first offset of each span whose record has this time or a later one; the span's end if there is
    /// none.
    fn first_from(&self, spans: &[Span], at: Time) -> Result<Vec<i64>, EngineError> {
        let failed = |error: KafkaError| unavailable(&self.cluster, &error);
        let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        let mut list = TopicPartitionList::new();
        for span in spans {
            list.add_partition_offset(&span.topic, span.partition, Offset::Offset(millis)).map_err(failed)?;
        }
        let found = self.consumer.offsets_for_times(list, WAIT).map_err(failed)?;
        let offset = |span: &Span| match found.find_partition(&span.topic, span.partition)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        Ok(spans.iter().map(|span| offset(span).unwrap_or(span.end)).collect())
    }

    /// Passes the records at the last `count` offsets of each span to `each`. The spans are of one topic.
    pub(crate) fn read_tails(
        &self,
        spans: &[Span],
        count: i64,
        each: impl FnMut(&BorrowedMessage<'_>),
    ) -> Result<u64, EngineError> {
        let failed = |error: KafkaError| unavailable(&self.cluster, &error);
        let mut tails = Vec::with_capacity(spans.len());
        for span in spans {
            let (low, _) = self.watermarks(&span.topic, span.partition).map_err(failed)?;
            tails.push(Span { low: low.max(span.end - count), ..span.clone() });
        }
        self.read(&tails, |span| span.low, each)
    }

    /// Passes every record of `spans`, which are of one topic, to `each`, from the offset that `from` returns to the
    /// known end. Returns the number of records. Records of aborted transactions are not included.
    pub fn read(
        &self,
        spans: &[Span],
        from: impl Fn(&Span) -> i64,
        mut each: impl FnMut(&BorrowedMessage<'_>),
    ) -> Result<u64, EngineError> {
        self.read_while(spans, from, |record| {
            each(record);
            ControlFlow::Continue(())
        })
    }

    /// Like [`Self::read`], but ends when `each` breaks.
    pub fn read_while(
        &self,
        spans: &[Span],
        from: impl Fn(&Span) -> i64,
        mut each: impl FnMut(&BorrowedMessage<'_>) -> ControlFlow<()>,
    ) -> Result<u64, EngineError> {
        let failed = |error: KafkaError| unavailable(&self.cluster, &error);
        let mut open: Vec<&Span> = spans.iter().filter(|span| from(span).max(span.low) < span.end).collect();
        let mut list = TopicPartitionList::new();
        for span in &open {
            let start = Offset::Offset(from(span).max(span.low));
            list.add_partition_offset(&span.topic, span.partition, start).map_err(failed)?;
        }
        self.consumer.assign(&list).map_err(failed)?;
        let (mut records, mut heard) = (0, Instant::now());
        while !open.is_empty() {
            let ended = match self.consumer.poll(Duration::from_millis(200)) {
                Some(Ok(record)) => {
                    let span = open.iter().find(|span| span.partition == record.partition());
                    let Some(span) = span else { continue };
                    heard = Instant::now();
                    if record.offset() < span.end {
                        records += 1;
                        if each(&record).is_break() {
                            break;
                        }
                    }
                    (record.offset() + 1 >= span.end).then_some(record.partition())
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => Some(partition),
                Some(Err(error)) if heard.elapsed() > SILENCE_MAX => return Err(failed(error)),
                None if heard.elapsed() > SILENCE_MAX => {
                    let problem = format!("{} gives no records", open[0].topic);
                    return Err(EngineError::Unavailable(problem));
                }
                Some(Err(_)) | None => None,
            };
            if let Some(partition) = ended {
                open.retain(|span| span.partition != partition);
                heard = Instant::now();
            }
        }
        self.consumer.assign(&TopicPartitionList::new()).map_err(failed)?;
        Ok(records)
    }
}

fn is_moving(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownPartition
        )
    )
}

/// Returns what the group of this consumer has committed. A cluster that has just started, or lost a broker, first has
/// to find a coordinator for the group.
pub(crate) fn committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    list: &TopicPartitionList,
) -> Result<TopicPartitionList, KafkaError> {
    let until = Instant::now() + COORDINATOR_MAX;
    loop {
        match consumer.committed_offsets(list.clone(), WAIT) {
            Err(KafkaError::MetadataFetch(
                RDKafkaErrorCode::NotCoordinator
                | RDKafkaErrorCode::CoordinatorNotAvailable
                | RDKafkaErrorCode::CoordinatorLoadInProgress,
            )) if Instant::now() < until => std::thread::sleep(AGAIN_AFTER),
            answer => return answer,
        }
    }
}

fn unavailable(cluster: &Cluster, error: &KafkaError) -> EngineError {
    EngineError::Unavailable(reach::silent_text(&cluster.brokers.join(","), &error.to_string()))
}
