//! Copies on their way: what was sent and is not acknowledged, held back or sent again as the error demands.
//!
//! An acknowledgement lost is a copy that may exist: it is sent again, which can make a twin and never loses a message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::Message as _;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};

use crate::mailbox::{Mailbox, locked};
use crate::record::{CopyRecord, Origin, headers};
use crate::trouble::Trouble;

/// How long a copy waits after an error that may pass.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
const GENERATION_BITS: u32 = 16;
const SLOT_MASK: usize = usize::MAX >> GENERATION_BITS;

/// A record to be written.
#[derive(Clone, Debug)]
pub struct Production<T> {
    pub topic: Arc<str>,
    pub partition: i32,
    pub body: Body,
    /// What shall be done once it is acknowledged.
    pub then: T,
}

#[derive(Clone, Debug)]
pub enum Body {
    /// A message with its story; `from` is the record it replaces.
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
pub enum Ended {
    Stored {
        partition: i32,
        offset: i64,
    },
    /// It can never be written as it is.
    Refused(RDKafkaErrorCode),
}

#[derive(Debug)]
struct Report {
    opaque: usize,
    result: Result<(i32, i64), RDKafkaErrorCode>,
}

/// Where delivery reports are put, by a thread of the producer.
struct Reports {
    tray: Arc<Mutex<Vec<Report>>>,
    mailbox: Arc<Mailbox>,
    trouble: Trouble,
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        crate::desk::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(times) = self.trouble.times(&error, Instant::now()) {
            tracing::warn!(%error, reason, times, "the Kafka producer met a problem; it goes on by itself");
        }
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, delivery: &DeliveryResult<'_>, opaque: usize) {
        let result = match delivery {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)),
        };
        let mut reports = locked(&self.tray);
        let first = reports.is_empty();
        reports.push(Report { opaque, result });
        drop(reports);
        if first {
            self.mailbox.call_engine();
        }
    }
}

/// Everything that is on its way.
pub struct Outbox<T> {
    config: ClientConfig,
    mailbox: Arc<Mailbox>,
    producer: ThreadedProducer<Reports>,
    reports: Arc<Mutex<Vec<Report>>>,
    /// Counts the producers: a report of an earlier one says nothing.
    generation: usize,
    slots: Vec<Option<Production<T>>>,
    unused: Vec<usize>,
    /// To be sent, at the earliest at the given time.
    held: VecDeque<(Instant, usize)>,
    heard: Vec<Report>,
}

impl<T> std::fmt::Debug for Outbox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("on_their_way", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Outbox<T> {
    pub fn new(config: ClientConfig, mailbox: &Arc<Mailbox>) -> Result<Self, KafkaError> {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let producer = connect(&config, &reports, mailbox)?;
        Ok(Self {
            config,
            mailbox: Arc::clone(mailbox),
            producer,
            reports,
            generation: 0,
            slots: Vec::new(),
            unused: Vec::new(),
            held: VecDeque::new(),
            heard: Vec::new(),
        })
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.unused.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What every production on its way will do.
    pub fn pending(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|production| &production.then)
    }

    /// Sends a record; how it ends is told by [`Self::poll`].
    pub fn send(&mut self, production: Production<T>, ended: &mut Vec<(Production<T>, Ended)>) {
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(production);
        if self.held.is_empty() {
            self.give(slot, ended);
        } else {
            // Not before those that wait already.
            self.held.push_back((Instant::now(), slot));
        }
    }

    fn give(&mut self, slot: usize, ended: &mut Vec<(Production<T>, Ended)>) {
        let Some(production) = self.slots[slot].as_ref() else { return };
        let opaque = (self.generation << (usize::BITS - GENERATION_BITS)) | slot;
        let Err(error) = send(&self.producer, production, opaque) else { return };
        match error.rdkafka_error_code() {
            Some(code) if is_permanent(code) => self.end(slot, Ended::Refused(code), ended),
            _ => self.held.push_back((Instant::now() + AGAIN_AFTER / 25, slot)),
        }
    }

    fn end(&mut self, slot: usize, how: Ended, ended: &mut Vec<(Production<T>, Ended)>) {
        if let Some(production) = self.slots[slot].take() {
            self.unused.push(slot);
            ended.push((production, how));
        }
    }

    /// Hears what became of what was sent, and sends again what has to be.
    pub fn poll(&mut self, ended: &mut Vec<(Production<T>, Ended)>) {
        let mut heard = std::mem::take(&mut self.heard);
        std::mem::swap(&mut *locked(&self.reports), &mut heard);
        let (mut fatal, mut failed) = (false, false);
        for Report { opaque, result } in heard.drain(..) {
            let (generation, slot) = (opaque >> (usize::BITS - GENERATION_BITS), opaque & SLOT_MASK);
            if generation != self.generation {
                continue;
            }
            match result {
                Ok((partition, offset)) => self.end(slot, Ended::Stored { partition, offset }, ended),
                Err(code) if is_permanent(code) => self.end(slot, Ended::Refused(code), ended),
                Err(code) => {
                    failed = true;
                    // One that gets nothing through may never do so again: after a broker had no leader for a while it was
                    // seen to wait without end.
                    fatal |= matches!(code, RDKafkaErrorCode::Fatal | RDKafkaErrorCode::MessageTimedOut);
                    tracing::warn!(%code, "a copy could not be written yet; it is held and tried again");
                    self.held.push_back((Instant::now() + AGAIN_AFTER, slot));
                }
            }
        }
        self.heard = heard;
        if fatal || (failed && self.producer.client().fatal_error().is_some()) {
            self.begin_anew();
        }
        let now = Instant::now();
        for _ in 0..self.held.len() {
            let Some((at, slot)) = self.held.pop_front() else { break };
            if at > now {
                self.held.push_back((at, slot));
            } else {
                let before = self.held.len();
                self.give(slot, ended);
                if self.held.len() > before {
                    break;
                }
            }
        }
    }

    /// Whether something waits to be sent again, for which nobody calls.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// A producer after a fatal error is of no use. Whether its last records were written is not known.
    pub fn begin_anew(&mut self) {
        match connect(&self.config, &self.reports, &self.mailbox) {
            Ok(producer) => {
                tracing::warn!("the Kafka producer was made anew; what was on its way is sent again");
                let old = std::mem::replace(&mut self.producer, producer);
                // Its end waits for its threads.
                std::thread::spawn(move || drop(old));
                self.generation = (self.generation + 1) & ((1 << GENERATION_BITS) - 1);
                self.held.clear();
                let now = Instant::now();
                self.held
                    .extend((0..self.slots.len()).filter(|s| self.slots[*s].is_some()).map(|s| (now, s)));
            }
            Err(error) => tracing::error!(%error, "the Kafka producer cannot be made anew"),
        }
    }
}

fn connect(
    config: &ClientConfig,
    reports: &Arc<Mutex<Vec<Report>>>,
    mailbox: &Arc<Mailbox>,
) -> Result<ThreadedProducer<Reports>, KafkaError> {
    let (tray, mailbox) = (Arc::clone(reports), Arc::clone(mailbox));
    config.create_with_context(Reports { tray, mailbox, trouble: Trouble::default() })
}

fn send<T>(
    producer: &ThreadedProducer<Reports>,
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

/// Whether trying again cannot help.
fn is_permanent(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidMessageSize
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::PolicyViolation
            | RDKafkaErrorCode::UnsupportedForMessageFormat
    )
}
