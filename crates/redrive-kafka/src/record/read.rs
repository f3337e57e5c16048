//! Converts a record to a message. This is the hot path: a fresh record costs one buffer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::message::Message as Record;
use redrive::internal::engine::History;
use redrive_core::message::limits;
use redrive_core::{Message, MessageParts, Meta, Reason, Time};

use super::our_headers::{self, Given, Ours, parse};
use super::pick::PickedValue;
use super::position::PositionText;
use super::{CopyRecord, LetterMarks, Origin, Read, Unreadable, attempts, names};
use crate::KafkaPipeline;

/// A producer's `x-created` is trusted if it is this close to the record's own timestamp.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_mins(5);

/// Reads the records of one pipeline.
#[derive(Clone, Debug)]
pub struct RecordReader {
    source: Arc<str>,
    id: Option<PickedValue>,
    tenant: Option<PickedValue>,
    ttl: Option<Duration>,
}

impl RecordReader {
    pub fn new(pipeline: &KafkaPipeline) -> Self {
        Self {
            source: pipeline.source.as_str().into(),
            id: pipeline.id.as_ref().map(PickedValue::of),
            tenant: pipeline.tenant.as_ref().map(PickedValue::of),
            ttl: pipeline.ttl,
        }
    }

    pub fn read<R: Record>(&self, record: &R) -> Result<Read, Unreadable> {
        let Ok(headers) = our_headers::all(record.headers()) else {
            return Err(self.unreadable(record, "the name of a header is not text".to_owned()));
        };
        // The last occurrence, where our headers begin.
        let mark = headers.iter().rposition(|(name, _)| *name == names::ORIG_TOPIC);
        if let Some((foreign, ours)) = mark.map(|mark| headers.split_at(mark))
            && let Some(copy) = self.copy(record, foreign, ours)
        {
            return match copy {
                Ok(copy) if self.was_put_back_by_hand(record, &copy) => self.anew(record, foreign, &copy),
                copy => copy.map(|copy| Read::Copy(Box::new(copy))),
            };
        }
        self.fresh(record, &headers)
    }

    /// Returns the position of a record, as the origin of what is made from it.
    pub fn place(&self, record: &impl Record) -> Origin {
        Origin { topic: self.topic(record.topic()), partition: record.partition(), offset: record.offset() }
    }

    /// Returns the name of a topic; it is nearly always the source, whose name is at hand.
    fn topic(&self, name: &str) -> Arc<str> {
        if *self.source == *name { self.source.clone() } else { name.into() }
    }

    /// Whether somebody copied a record by hand from one of our topics to the source. A copy that a replay has put
    /// there names its job and has no reason.
    fn was_put_back_by_hand(&self, record: &impl Record, copy: &CopyRecord) -> bool {
        record.topic() == &*self.source && (copy.job.is_none() || copy.reason.is_some())
    }

    /// Such a record is a new message with its old id: attempts and time start over.
    fn anew<R: Record>(
        &self,
        record: &R,
        foreign: &[Given<'_>],
        copy: &CopyRecord,
    ) -> Result<Read, Unreadable> {
        let created = created_at(record, foreign);
        let deadline = self.ttl.map(|ttl| created.plus(ttl));
        let message = MessageParts {
            id: copy.message.id(),
            key: record.key(),
            payload: record.payload(),
            tenant: copy.message.tenant(),
            headers: copy.message.headers_or_null(),
            created,
            deadline,
        }
        .encode()
        .map_err(|error| self.unreadable(record, error.to_string()))?;
        Ok(Read::Fresh(message, Meta { created, deadline, ..Meta::default() }))
    }

    fn fresh<R: Record>(&self, record: &R, headers: &[Given<'_>]) -> Result<Read, Unreadable> {
        let mut place = PositionText::new();
        let found = |place: &Option<PickedValue>, max: usize| {
            place
                .as_ref()
                .and_then(|place| place.find(record.payload(), headers))
                .filter(|text| (1..=max).contains(&text.len()))
        };
        // A record without the configured id falls back to its position, which is as stable.
        let id = found(&self.id, limits::ID_BYTES_MAX).unwrap_or_else(|| Cow::Borrowed(place.of(record)));
        let tenant = found(&self.tenant, limits::TENANT_BYTES_MAX);
        let created = created_at(record, headers);
        let deadline = self.ttl.map(|ttl| created.plus(ttl));
        let message = MessageParts {
            id: &id,
            key: record.key(),
            payload: record.payload(),
            tenant: tenant.as_deref(),
            headers: headers.iter().copied(),
            created,
            deadline,
        }
        .encode()
        .map_err(|error| self.unreadable(record, error.to_string()))?;
        Ok(Read::Fresh(message, Meta { created, deadline, ..Meta::default() }))
    }

    /// Returns the copy, if our headers are complete. In the source topic it must also originate from that topic: the
    /// letters of one pipeline may be the source of another, for which they are fresh messages.
    fn copy<R: Record>(
        &self,
        record: &R,
        foreign: &[Given<'_>],
        ours: &[Given<'_>],
    ) -> Option<Result<CopyRecord, Unreadable>> {
        let ours = Ours::collect(ours);
        let topic = ours.orig_topic?;
        if record.topic() == &*self.source && topic != &*self.source {
            return None;
        }
        let origin =
            Origin { topic: self.topic(topic), partition: ours.orig_partition?, offset: ours.orig_offset? };
        let created = ours.created?;
        let deadline = ours.deadline;
        let meta = Meta {
            created,
            deadline,
            attempts: ours.attempts?,
            uncounted: ours.uncounted,
            reconnects: ours.reconnects,
            crashes: ours.crashes,
            last_crash: ours.last_crash,
            replays: ours.replays,
            first_failed: ours.first_seen,
            held_ms: ours.held_ms,
            last_delay_ms: ours.last_delay_ms,
            deferred: ours.deferred,
        };
        let message = MessageParts {
            id: ours.message_id.filter(|id| !id.is_empty())?,
            key: record.key(),
            payload: record.payload(),
            tenant: ours.tenant,
            headers: foreign.iter().chain(&ours.appended).copied(),
            created: ours.orig_created.unwrap_or(created),
            deadline: ours.orig_deadline.beside(deadline),
        }
        .encode();
        Some(match message {
            Ok(message) => Ok(CopyRecord {
                message,
                meta,
                history: ours.attempt_errors.map(attempts::read).unwrap_or_default(),
                origin,
                due: ours.due,
                reason: ours.reason,
                dead_at: ours.dead_at,
                job: ours.job,
                marks: ours.marks,
            }),
            Err(error) => Err(self.unreadable(record, error.to_string())),
        })
    }

    /// Keeps as much of the record as a message can hold.
    fn unreadable<R: Record>(&self, record: &R, problem: String) -> Unreadable {
        let mut place = PositionText::new();
        let place = place.of(record);
        let created = created_at(record, &[]);
        let without_headers = |key, payload| {
            let headers = std::iter::empty();
            MessageParts { id: place, key, payload, tenant: None, headers, created, deadline: None }
                .encode()
                .ok()
        };
        let message = without_headers(record.key(), record.payload())
            .or_else(|| without_headers(None, record.payload()))
            .or_else(|| without_headers(record.key(), None))
            .or_else(|| without_headers(None, None));
        let rest = CopyRecord {
            message: message.unwrap_or_else(nothing),
            meta: Meta { created, ..Meta::default() },
            history: History::default(),
            origin: self.place(record),
            due: None,
            reason: Some(Reason::Corrupt),
            dead_at: None,
            job: None,
            marks: LetterMarks::default(),
        };
        Unreadable { place: place.to_owned(), problem, rest: Box::new(rest) }
    }
}

/// A position has at most 249 + 2 + 10 + 19 bytes, so a message with nothing else can always be built.
fn nothing() -> Message {
    Message::builder("unreadable")
        .build()
        .unwrap_or_else(|_| unreachable!("a short id is within every bound"))
}

/// Returns when the message was created: its `x-created` if that is close to the record's timestamp, else that
/// timestamp.
fn created_at<R: Record>(record: &R, headers: &[Given<'_>]) -> Time {
    let stamped = record.timestamp().to_millis().and_then(|ms| u64::try_from(ms).ok()).map(Time::from_millis);
    // A record without a timestamp counts as created when it is read.
    let stamped = stamped.unwrap_or_else(now);
    let header = headers.iter().rfind(|(name, _)| *name == names::CREATED);
    let claimed = header.and_then(|(_, value)| *value).and_then(parse).map(Time::from_millis);
    claimed
        .filter(|claimed| claimed.since(stamped).max(stamped.since(*claimed)) <= CLOCK_DIFFERENCE_MAX)
        .unwrap_or(stamped)
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
