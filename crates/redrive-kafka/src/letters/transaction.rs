//! The one transactional producer that changes the letters of a pipeline.
//!
//! All processes use the same transactional id, so the one that begins fences all others: from then on only its own
//! transactions can commit. So what it knows about the letters after it began stays true until it is fenced itself, and
//! then its transaction has no effect.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Headers as _, Message as Record, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use crate::client::problems;
use crate::client::reports::collect_reports;

/// With less time left than this, a commit is not retried.
const AGAIN_WITHIN: Duration = Duration::from_millis(1);

/// One record of a transaction.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub topic: &'a str,
    /// `None`: chosen by hashing the key.
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    pub payload: Option<Vec<u8>>,
    pub headers: Option<OwnedHeaders>,
}

/// Why a transaction did not happen, or may not have.
#[derive(Debug)]
pub enum TransactionError {
    /// Another process has begun, or the broker gave up on this one: begin anew and check again.
    Lost(String),
    /// The cluster does not allow it; an operator has to act first.
    Forbidden(String),
    /// The broker will never accept this record.
    Refused { record: usize, why: String },
}

/// Partition and offset of a record, or the error.
type Ack = Result<(i32, i64), RDKafkaErrorCode>;

#[derive(Debug, Default)]
pub struct Acks {
    answers: Mutex<Vec<(usize, Ack)>>,
    /// Why the transaction has failed. Its records get no more answers then, and the client only logs the reason.
    failed: Mutex<Option<String>>,
}

impl ClientContext for Acks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if facility == "TXNERR" {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.to_owned());
        }
        problems::log(level, facility, message);
    }
}

impl ProducerContext for Acks {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, record: usize) {
        let ack = match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        };
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((record, ack));
    }
}

pub struct Transactions {
    config: ClientConfig,
    producer: Option<BaseProducer<Acks>>,
}

impl std::fmt::Debug for Transactions {
    /// Omits the configuration, which may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transactions").field("begun", &self.producer.is_some()).finish_non_exhaustive()
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

impl Transactions {
    pub fn new(mut config: ClientConfig) -> Self {
        // There is nothing to wait for: the transaction is sent as a whole.
        config.set("linger.ms", "0");
        Self { config, producer: None }
    }

    pub fn is_begun(&self) -> bool {
        self.producer.is_some()
    }

    /// Fences all other processes. Their committed transactions stand; uncommitted ones are aborted.
    pub fn begin(&mut self, deadline: Instant) -> Result<(), TransactionError> {
        let lost = |error: KafkaError| transaction_error(&error);
        let producer = BaseProducer::from_config_and_context(&self.config, Acks::default()).map_err(lost)?;
        producer.init_transactions(left(deadline)).map_err(lost)?;
        self.producer = Some(producer);
        Ok(())
    }

    pub fn producer(&self) -> Option<&BaseProducer<Acks>> {
        self.producer.as_ref()
    }

    /// Drops the producer: the next change has to begin anew.
    pub fn forget(&mut self) {
        self.producer = None;
    }

    /// Publishes all records or none. Returns partition and offset of each. After an error it must begin anew.
    pub fn publish(
        &mut self,
        records: &[Outgoing<'_>],
        deadline: Instant,
    ) -> Result<Vec<(i32, i64)>, TransactionError> {
        let Some(producer) = self.producer.take() else {
            return Err(TransactionError::Lost("it has not begun".to_owned()));
        };
        let published = publish(&producer, records, deadline)?;
        self.producer = Some(producer);
        Ok(published)
    }
}

fn publish(
    producer: &BaseProducer<Acks>,
    records: &[Outgoing<'_>],
    deadline: Instant,
) -> Result<Vec<(i32, i64)>, TransactionError> {
    let lost = |error: KafkaError| transaction_error(&error);
    producer.context().failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    producer.context().answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    producer.begin_transaction().map_err(lost)?;
    for (number, record) in records.iter().enumerate() {
        send(producer, number, record, deadline)?;
    }
    // Wait here rather than in the commit, whose flush checks only every 100 ms.
    while producer.in_flight_count() > 0 {
        if left(deadline) == Duration::ZERO {
            return Err(TransactionError::Lost("the broker did not acknowledge in time".to_owned()));
        }
        collect_reports(producer);
        let failed = producer.context().failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(why) = failed {
            return Err(if why.contains("uthorization") {
                TransactionError::Forbidden(why)
            } else if why.contains("essage size too large") {
                // The record's own answer may still be on its way, or never come.
                TransactionError::Refused { record: largest(records), why }
            } else {
                TransactionError::Lost(why)
            });
        }
    }
    let acks =
        std::mem::take(&mut *producer.context().answers.lock().unwrap_or_else(PoisonError::into_inner));
    let mut places = vec![(0, -1); records.len()];
    let mut failed = None;
    for (record, ack) in acks {
        match ack {
            Ok(place) => places[record] = place,
            Err(code) if is_refusal(code) => {
                return Err(TransactionError::Refused { record, why: code.to_string() });
            }
            Err(code) if is_forbidden(code) => return Err(TransactionError::Forbidden(code.to_string())),
            Err(code) => failed = Some(code),
        }
    }
    if let Some(code) = failed {
        return Err(TransactionError::Lost(code.to_string()));
    }
    loop {
        match producer.commit_transaction(left(deadline)) {
            Ok(()) => return Ok(places),
            Err(KafkaError::Transaction(error)) if error.is_retriable() && left(deadline) > AGAIN_WITHIN => {}
            Err(error) => return Err(lost(error)),
        }
    }
}

/// Returns the largest record: the one that is too large, if any is, because such a record is alone in its batch.
fn largest(records: &[Outgoing<'_>]) -> usize {
    let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    let header = |header: Header<'_, &[u8]>| header.key.len() + header.value.map_or(0, <[u8]>::len);
    // A small payload may have large headers, and then the record with the largest payload is not the cause.
    let headers = |headers: &Option<OwnedHeaders>| {
        headers.as_ref().map_or(0, |headers| headers.iter().map(header).sum::<usize>())
    };
    let bytes = |record: &Outgoing<'_>| len(&record.key) + len(&record.payload) + headers(&record.headers);
    (0..records.len()).max_by_key(|at| bytes(&records[*at])).unwrap_or(0)
}

fn send(
    producer: &BaseProducer<Acks>,
    number: usize,
    outgoing: &Outgoing<'_>,
    deadline: Instant,
) -> Result<(), TransactionError> {
    let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(outgoing.topic, number);
    record.partition = outgoing.partition;
    record.key = outgoing.key.as_deref();
    record.payload = outgoing.payload.as_deref();
    record.headers.clone_from(&outgoing.headers);
    loop {
        record = match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back))
                if left(deadline) > Duration::ZERO =>
            {
                collect_reports(producer);
                back
            }
            Err((error, _)) => {
                return Err(match error.rdkafka_error_code() {
                    Some(code) if is_refusal(code) => {
                        TransactionError::Refused { record: number, why: error.to_string() }
                    }
                    _ => transaction_error(&error),
                });
            }
        };
    }
}

fn transaction_error(error: &KafkaError) -> TransactionError {
    let code = match error {
        KafkaError::Transaction(error) => Some(error.code()),
        error => error.rdkafka_error_code(),
    };
    let forbidden = code.is_some_and(is_forbidden);
    if forbidden {
        TransactionError::Forbidden(error.to_string())
    } else {
        TransactionError::Lost(error.to_string())
    }
}

/// Whether a permission is missing, so that retrying is useless until it is granted.
fn is_forbidden(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
    )
}

/// Whether the record itself is refused, so that retrying is useless.
fn is_refusal(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{InvalidMessage, InvalidMessageSize, InvalidRecord, MessageSizeTooLarge};
    matches!(code, MessageSizeTooLarge | InvalidRecord | InvalidMessage | InvalidMessageSize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: usize, header: usize) -> Outgoing<'static> {
        let value = vec![b'h'; header];
        let headers = OwnedHeaders::new().insert(Header { key: "h", value: Some(&value) });
        Outgoing {
            topic: "t",
            partition: None,
            key: None,
            payload: Some(vec![b'p'; payload]),
            headers: Some(headers),
        }
    }

    /// Otherwise another letter would be reported as damaged, and the one that is too large would be retried.
    #[test]
    fn the_record_that_is_too_large_is_found_by_all_of_its_bytes() {
        let state = Outgoing { headers: None, ..record(10, 0) };
        assert_eq!(largest(&[record(600, 0), record(100, 900), state, record(700, 10)]), 1);
    }
}
