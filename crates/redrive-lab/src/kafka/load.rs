//! Produces orders into a topic: at full speed, or at a fixed rate that does not slow down with the consumer.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use super::Error;
use crate::order;

/// Interval at which a paced load sends what has become due.
const TICK: Duration = Duration::from_millis(2);

/// Producer events handled per poll round; each reports on a batch.
const EVENTS: usize = 64;

/// Every broker learns about a new topic within this time.
const KNOWN_WITHIN: Duration = Duration::from_secs(30);

/// Counts acknowledged and failed records.
#[derive(Clone, Debug, Default)]
struct AckCounts {
    written: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    /// The error of the first failed record.
    first_failure: Arc<OnceLock<KafkaError>>,
}

impl ClientContext for AckCounts {}

impl ProducerContext for AckCounts {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => self.written.fetch_add(1, Ordering::Relaxed),
            Err((error, _)) => {
                self.first_failure.get_or_init(|| error.clone());
                self.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

/// Produces orders; order `i` always goes to the same partition, and so do all orders of its customer.
pub struct Loader {
    producer: BaseProducer<AckCounts>,
    answers: AckCounts,
    topic: String,
    partitions: u64,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl Loader {
    /// `passed_on` are librdkafka settings that override ours.
    pub fn new(
        brokers: &str,
        topic: &str,
        partitions: u64,
        passed_on: &[(&str, &str)],
    ) -> Result<Self, Error> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("enable.idempotence", "true");
        config.set("linger.ms", "5").set("queue.buffering.max.messages", "500000");
        config.set("batch.size", "262144").set("queue.buffering.max.kbytes", "524288");
        for (name, value) in passed_on {
            config.set(*name, *value);
        }
        let answers = AckCounts::default();
        let producer = BaseProducer::from_config_and_context(&config, answers.clone())?;
        Ok(Self { producer, answers, topic: topic.to_owned(), partitions })
    }

    /// Produces these orders and returns when all are acknowledged.
    pub fn write(&self, orders: Range<u64>) -> Result<(), Error> {
        self.write_with(orders, |i| self.record(i))
    }

    /// Produces a record for each number; `record` returns its partition, key and payload. Returns when all are
    /// acknowledged.
    pub fn write_with(
        &self,
        numbers: Range<u64>,
        record: impl Fn(u64) -> (i32, String, String),
    ) -> Result<(), Error> {
        for (count, i) in numbers.enumerate() {
            let (partition, key, payload) = record(i);
            self.send_to(partition, &key, &payload)?;
            if count.is_multiple_of(1000) {
                self.producer.poll(Duration::ZERO);
            }
        }
        self.drain()
    }

    /// Produces orders from `first` on, `rate` per second, for `span`. Returns how many.
    pub fn write_paced(&self, first: u64, rate: u64, span: Duration) -> Result<u64, Error> {
        let (began, mut sent) = (Instant::now(), 0);
        let all = (span.as_secs_f64() * rate as f64) as u64;
        while sent < all {
            let wanted = ((began.elapsed().as_secs_f64() * rate as f64) as u64).min(all);
            for i in sent..wanted {
                self.send(first + i)?;
            }
            sent = wanted;
            self.rest(TICK);
        }
        self.drain()?;
        Ok(sent)
    }

    /// Produces a record to another topic and waits for it: a producer's first record also pays for the connection
    /// and the producer id, which takes half a second on a broker that has just started. It does not count as
    /// written.
    pub(crate) fn connect(&self, topic: &str) -> Result<(), Error> {
        let record = BaseRecord::to(topic).key("").payload("");
        self.producer.send(record).map_err(|(error, _)| error)?;
        self.drain()?;
        self.answers.written.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// The number of acknowledged orders.
    pub fn written(&self) -> u64 {
        self.answers.written.load(Ordering::Relaxed)
    }

    fn send(&self, i: u64) -> Result<(), Error> {
        let (partition, key, payload) = self.record(i);
        self.send_to(partition, &key, &payload)
    }

    fn record(&self, i: u64) -> (i32, String, String) {
        let customer = i % order::CUSTOMERS;
        ((customer % self.partitions) as i32, format!("c-{customer}"), order::payload(i))
    }

    /// Sends one record; [`Self::rest`] and [`Self::drain`] process its acknowledgement.
    pub(crate) fn send_to(&self, partition: i32, key: &str, payload: &str) -> Result<(), Error> {
        use RDKafkaErrorCode::{QueueFull, UnknownPartition, UnknownTopic};
        let mut record = BaseRecord::to(&self.topic).key(key).payload(payload).partition(partition);
        let mut unknown_since = None;
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(QueueFull), again)) => {
                    record = again;
                    self.rest(Duration::from_millis(1));
                }
                // Right after a topic is created, a broker may not know it yet.
                Err((KafkaError::MessageProduction(UnknownTopic | UnknownPartition), again))
                    if unknown_since.get_or_insert_with(Instant::now).elapsed() < KNOWN_WITHIN =>
                {
                    record = again;
                    self.rest(Duration::from_millis(100));
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
    }

    /// Sleeps, then processes acknowledgements. A poll with a timeout would spin: the client counts whole
    /// milliseconds and polls repeatedly during the last one.
    pub(crate) fn rest(&self, span: Duration) {
        std::thread::sleep(span);
        for _ in 0..EVENTS {
            self.producer.poll(Duration::ZERO);
        }
    }

    /// Waits for all acknowledgements. Does not use `flush`, which polls in steps of 100 ms even if they arrive
    /// sooner.
    pub(crate) fn drain(&self) -> Result<(), Error> {
        while self.producer.in_flight_count() > 0 {
            self.rest(Duration::from_millis(1));
        }
        match self.answers.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            failed => {
                let why = self.answers.first_failure.get().map(|error| format!("; the first: {error}"));
                Err(format!("{failed} orders were not acknowledged{}", why.unwrap_or_default()).into())
            }
        }
    }
}
