//! Produces orders to a Kafka topic: acknowledged once all required replicas have them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use redrive_lab::producer::{BatchAnswer, OrderBatch, Target};
use tokio::sync::oneshot;

use crate::exit::Failed;

/// The producer's target for this run.
pub fn target(brokers: &[String], topic: &str) -> Result<Target, Failed> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers.join(","))
        .set("client.id", "redrive-producer")
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("compression.type", "lz4")
        // Like Java clients, so that a customer stays in one partition whichever client produces.
        .set("partitioner", "murmur2_random");
    let producer: ThreadedProducer<Reports> = config
        .create_with_context(Reports)
        .map_err(|error| Failed::usage(format!("no producer for {topic}: {error}")))?;
    let (producer, topic) = (Arc::new(producer), Arc::<str>::from(topic));
    Ok(Target::callback(move |batch| offer(Arc::clone(&producer), Arc::clone(&topic), batch)))
}

/// The unacknowledged records of one batch.
struct Open {
    left: AtomicUsize,
    trouble: Mutex<Option<String>>,
    all: Mutex<Option<oneshot::Sender<()>>>,
}

impl Open {
    fn ended(&self, trouble: Option<String>) {
        if let Some(trouble) = trouble {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(all) = self.all.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            let _ = all.send(());
        }
    }
}

async fn offer(
    producer: Arc<ThreadedProducer<Reports>>,
    topic: Arc<str>,
    batch: Arc<OrderBatch>,
) -> BatchAnswer {
    let (all, delivered) = oneshot::channel();
    let open = Arc::new(Open {
        left: AtomicUsize::new(batch.orders.len()),
        trouble: Mutex::default(),
        all: Mutex::new(Some(all)),
    });
    let created = i64::try_from(batch.created.as_millis()).unwrap_or(i64::MAX);
    for order in &batch.orders {
        loop {
            let record = BaseRecord::with_opaque_to(&topic, Arc::clone(&open))
                .key(&order.key)
                .payload(&order.payload)
                .timestamp(created);
            match producer.send(record) {
                Ok(()) => break,
                // Records already sent stay in flight; the rest waits for room.
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                Err((error, _)) => {
                    open.ended(Some(error.to_string()));
                    break;
                }
            }
        }
    }
    // Every record is reported, at the latest when it times out.
    let _ = delivered.await;
    match open.trouble.lock().unwrap_or_else(PoisonError::into_inner).take() {
        None => BatchAnswer::Accepted { duplicates: 0 },
        Some(why) => BatchAnswer::Unreachable { why },
    }
}

/// Receives acknowledgements, on a thread of the client library.
struct Reports;

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Arc<Open>;

    fn delivery(&self, result: &DeliveryResult<'_>, open: Arc<Open>) {
        open.ended(result.as_ref().err().map(|(error, _)| error.to_string()));
    }
}
