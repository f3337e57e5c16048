//! Hands records to librdkafka's producer and collects its delivery reports.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use rdkafka::ClientConfig;
use rdkafka::Message as _;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};

use crate::client::problems::{ProblemLog, log};
use crate::consume::mailbox::Mailbox;
use crate::locked::locked;
use crate::record::{CopyRecord, Origin, headers};

/// A record to be written.
#[derive(Clone, Debug)]
pub struct Production<T> {
    pub topic: Arc<str>,
    pub partition: i32,
    pub body: Body,
    /// What to do once it is acknowledged.
    pub then: T,
}

impl<T> Production<T> {
    /// Returns roughly how much it takes up in a batch.
    pub fn bytes(&self) -> usize {
        const HEADERS: usize = 512;
        let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
        match &self.body {
            Body::Copy { copy, .. } => HEADERS + length(copy.message.key()) + length(copy.message.payload()),
            Body::Plain { key, value } => key.len() + length(value.as_deref()),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Body {
    /// A message with its history; `from` is the record that it replaces.
    Copy {
        copy: Box<CopyRecord>,
        from: Option<Origin>,
    },
    Plain {
        key: String,
        value: Option<Vec<u8>>,
    },
}

/// How a production ended.
#[derive(Debug)]
pub enum WriteOutcome {
    Stored {
        partition: i32,
        offset: i64,
    },
    /// It can never be written as it is. For copies only.
    Refused(RDKafkaErrorCode),
    /// It could not be written and is no longer needed.
    GivenUp,
}

/// The producer's report on a record.
#[derive(Debug)]
pub(crate) struct DeliveryReport {
    pub opaque: usize,
    pub result: Result<(i32, i64), RDKafkaErrorCode>,
}

/// Collects delivery reports; a thread of the producer calls it.
pub(crate) struct ReportCollector {
    tray: Arc<Mutex<Vec<DeliveryReport>>>,
    mailbox: Arc<Mailbox>,
    problems: ProblemLog,
}

impl ClientContext for ReportCollector {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(times) = self.problems.times(&error, Instant::now()) {
            tracing::warn!(%error, reason, times, "the Kafka producer has a problem; it recovers by itself");
        }
    }
}

impl ProducerContext for ReportCollector {
    type DeliveryOpaque = usize;

    fn delivery(&self, delivery: &DeliveryResult<'_>, opaque: usize) {
        let result = match delivery {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)),
        };
        let mut reports = locked(&self.tray);
        let first = reports.is_empty();
        reports.push(DeliveryReport { opaque, result });
        drop(reports);
        if first {
            self.mailbox.call_engine();
        }
    }
}

pub(crate) fn connect(
    config: &ClientConfig,
    reports: &Arc<Mutex<Vec<DeliveryReport>>>,
    mailbox: &Arc<Mailbox>,
) -> Result<ThreadedProducer<ReportCollector>, KafkaError> {
    let (tray, mailbox) = (Arc::clone(reports), Arc::clone(mailbox));
    config.create_with_context(ReportCollector { tray, mailbox, problems: ProblemLog::default() })
}

pub(crate) fn send<T>(
    producer: &ThreadedProducer<ReportCollector>,
    production: &Production<T>,
    opaque: usize,
) -> Result<(), KafkaError> {
    let record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&production.topic, opaque);
    let mut record = record.partition(production.partition);
    let headers: Option<OwnedHeaders> = match &production.body {
        Body::Copy { copy, from } => {
            record.key = copy.message.key();
            record.payload = copy.message.payload();
            Some(headers(copy, from.as_ref()))
        }
        Body::Plain { key, value } => {
            record.key = Some(key.as_bytes());
            record.payload = value.as_deref();
            None
        }
    };
    record.headers = headers;
    producer.send(record).map_err(|(error, _)| error)
}
