//! `T.subscriptions`: the subscriptions of a push pipeline, compacted. Every member reads all of it and writes what it
//! learns from its own deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientContext, Message as _};
use redrive::internal::engine::EngineError;
use redrive::internal::subscriptions::entry::Entry;
use redrive::internal::subscriptions::store::Follower;
use redrive::internal::subscriptions::{Loaded, SubscriptionStore};

use crate::client::reports::collect_reports;
use crate::client::threads::ClientThreads;
use crate::options::{Cluster, KafkaPipeline};
use crate::topics::Topics;

/// How long the cluster may take to accept a write.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// How long reading may make no progress before a start gives up.
const READ_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// The subscription topic of one pipeline. It was created or verified when the engine was opened.
pub struct SubscriptionTopic {
    topic: String,
    reader: Option<BaseConsumer>,
    producer: BaseProducer<Refusals>,
    ends: Arc<AtomicBool>,
    threads: ClientThreads,
}

impl SubscriptionTopic {
    pub fn open(cluster: &Cluster, pipeline: &KafkaPipeline) -> Result<Self, EngineError> {
        let topic = Topics::of(pipeline).subscriptions.ok_or_else(|| EngineError::Directory {
            problem: format!("the pipeline {} has no topic for subscriptions", pipeline.name),
            fix: "set `subscriptions` where its topics are described",
        })?;
        let failed = |error: KafkaError| EngineError::Unavailable(format!("{topic}: {error}"));
        let mut config = cluster.reader();
        config.set("auto.offset.reset", "earliest");
        let reader: BaseConsumer = config.create().map_err(failed)?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&topic, 0, Offset::Beginning).map_err(failed)?;
        reader.assign(&list).map_err(failed)?;
        let mut config = cluster.producer();
        config.set("linger.ms", "5").set("delivery.timeout.ms", WRITE_MAX.as_millis().to_string());
        let producer = config.create_with_context(Refusals::default()).map_err(failed)?;
        let (ends, threads) = (Arc::new(AtomicBool::new(false)), ClientThreads::default());
        Ok(Self { topic, reader: Some(reader), producer, ends, threads })
    }

    fn unwritten(&self, problem: &dyn std::fmt::Display) -> EngineError {
        EngineError::Unavailable(format!("{} could not be written: {problem}", self.topic))
    }
}

impl SubscriptionStore for SubscriptionTopic {
    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<Vec<String>, EngineError> {
        let Some(reader) = &self.reader else { return Ok(Vec::new()) };
        let (mut until, mut problem) = (Instant::now() + READ_MAX, "no answer".to_owned());
        loop {
            match reader.poll(POLL) {
                Some(Ok(record)) => {
                    until = Instant::now() + READ_MAX;
                    read(&record).map(Loaded::Entry).into_iter().for_each(&mut *each);
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(Vec::new()),
                Some(Err(error)) => problem = error.to_string(),
                None => {}
            }
            if Instant::now() > until {
                return Err(EngineError::Unavailable(format!("{}: {problem}", self.topic)));
            }
        }
    }

    fn append(&mut self, entries: &[Entry]) -> Result<(), EngineError> {
        let refused = self.producer.context().0.load(Ordering::SeqCst);
        let until = Instant::now() + WRITE_MAX;
        for entry in entries {
            let mut record = BaseRecord::<str, str>::to(&self.topic).partition(0).key(&entry.key);
            record.payload = entry.value.as_deref();
            // The producer's queue is bounded: wait until there is room.
            while let Err((error, back)) = self.producer.send(record) {
                let is_full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
                if !is_full || Instant::now() > until {
                    return Err(self.unwritten(&error));
                }
                collect_reports(&self.producer);
                record = back;
            }
        }
        if let Err(error) = self.producer.flush(WRITE_MAX) {
            self.producer.purge(PurgeConfig::default().queue().inflight());
            return Err(self.unwritten(&error));
        }
        let now_refused = self.producer.context().0.load(Ordering::SeqCst);
        if now_refused == refused { Ok(()) } else { Err(self.unwritten(&"the cluster refused records")) }
    }

    fn follow(&mut self, follower: Follower) {
        let Some(reader) = self.reader.take() else { return };
        let ends = Arc::clone(&self.ends);
        self.threads.spawn(&format!("follow-{}", self.topic), move || {
            while !ends.load(Ordering::SeqCst) {
                // The client logs the error and recovers by itself.
                if let Some(Ok(record)) = reader.poll(POLL) {
                    read(&record).into_iter().for_each(|entry| follower(entry));
                }
            }
        });
    }
}

fn read(record: &BorrowedMessage<'_>) -> Option<Entry> {
    let key = std::str::from_utf8(record.key()?).ok()?.to_owned();
    let value = record.payload().map(|value| String::from_utf8_lossy(value).into_owned());
    Some(Entry { key, value })
}

impl Drop for SubscriptionTopic {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
    }
}

/// Counts records that the cluster refused.
#[derive(Default)]
struct Refusals(AtomicU64);

impl ClientContext for Refusals {}

impl ProducerContext for Refusals {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl std::fmt::Debug for SubscriptionTopic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionTopic").field("topic", &self.topic).finish_non_exhaustive()
    }
}
