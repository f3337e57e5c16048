//! From a record to a message. This is the hot path: a fresh record costs one buffer.

use std::borrow::Cow;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::message::{Headers, Message as Record};
use redrive::engine::History;
use redrive_core::message::limits;
use redrive_core::{Message, MessageParts, Meta, Reason, Time};

use super::pick::Place;
use super::write::NONE;
use super::{CopyRecord, Origin, Read, Unreadable, attempts, names};
use crate::KafkaPipeline;

/// A producer's `x-created` is believed if it is this close to the time that the record itself carries.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_mins(5);

/// Reads the records of one pipeline.
#[derive(Clone, Debug)]
pub struct Reader {
    source: Arc<str>,
    id: Option<Place>,
    tenant: Option<Place>,
    ttl: Option<Duration>,
}

impl Reader {
    pub fn new(pipeline: &KafkaPipeline) -> Self {
        Self {
            source: pipeline.source.as_str().into(),
            id: pipeline.id.as_ref().map(Place::of),
            tenant: pipeline.tenant.as_ref().map(Place::of),
            ttl: pipeline.ttl,
        }
    }

    pub fn read<R: Record>(&self, record: &R) -> Result<Read, Unreadable> {
        let Ok(marks) = Marks::find(record.headers()) else {
            return Err(self.unreadable(record, "the name of a header is not text".to_owned()));
        };
        if let Some(mark) = marks.copy
            && let Some(copy) = self.copy(record, mark)
        {
            return copy.map(|copy| Read::Copy(Box::new(copy)));
        }
        self.fresh(record, marks.created)
    }

    /// Where the record lies, as the origin of what is made from it.
    pub fn place(&self, record: &impl Record) -> Origin {
        Origin { topic: self.topic(record.topic()), partition: record.partition(), offset: record.offset() }
    }

    /// Nearly always the source, whose name is at hand.
    fn topic(&self, name: &str) -> Arc<str> {
        if *self.source == *name { self.source.clone() } else { name.into() }
    }

    fn fresh<R: Record>(&self, record: &R, created: Option<usize>) -> Result<Read, Unreadable> {
        let headers = record.headers();
        let mut place = PlaceText::new();
        let found = |place: &Option<Place>, max: usize| {
            place
                .as_ref()
                .and_then(|place| place.find(record.payload(), headers))
                .filter(|text| (1..=max).contains(&text.len()))
        };
        // A record without the id it should have still has its place, which is as stable.
        let id = found(&self.id, limits::ID_BYTES_MAX).unwrap_or_else(|| Cow::Borrowed(place.of(record)));
        let tenant = found(&self.tenant, limits::TENANT_BYTES_MAX);
        let created = created_at(record, created);
        let deadline = self.ttl.map(|ttl| created.plus(ttl));
        let message = MessageParts {
            id: &id,
            key: record.key(),
            payload: record.payload(),
            tenant: tenant.as_deref(),
            headers: foreign(headers, None),
            created,
            deadline,
        }
        .encode()
        .map_err(|error| self.unreadable(record, error.to_string()))?;
        Ok(Read::Fresh(message, Meta { created, deadline, ..Meta::default() }))
    }

    /// The copy, if its headers from `mark` on are whole. In the source topic it must also be one of that topic: the
    /// letters of one pipeline may be the source of another, for which they are as fresh as anything.
    fn copy<R: Record>(&self, record: &R, mark: usize) -> Option<Result<CopyRecord, Unreadable>> {
        let headers = record.headers()?;
        let ours = Ours::collect(headers, mark);
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
        };
        let message = MessageParts {
            id: ours.message_id.filter(|id| !id.is_empty())?,
            key: record.key(),
            payload: record.payload(),
            tenant: ours.tenant,
            headers: foreign(Some(headers), Some(mark)),
            created: ours.orig_created.unwrap_or(created),
            deadline: ours.orig_deadline.unwrap_or(deadline),
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
            }),
            Err(error) => Err(self.unreadable(record, error.to_string())),
        })
    }

    /// Keeps of the record what a message can hold.
    fn unreadable<R: Record>(&self, record: &R, problem: String) -> Unreadable {
        let mut place = PlaceText::new();
        let place = place.of(record);
        let created = created_at(record, None);
        let without_headers = |key, payload| {
            let headers = std::iter::empty();
            MessageParts { id: place, key, payload, tenant: None, headers, created, deadline: None }.encode().ok()
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
        };
        Unreadable { place: place.to_owned(), problem, rest: Box::new(rest) }
    }
}

/// A place is at most 249 + 2 + 10 + 19 bytes, so a message with nothing else can always be made.
fn nothing() -> Message {
    Message::builder("unreadable").build().unwrap_or_else(|_| unreachable!("a short id is within every bound"))
}

/// When the message was made: by its `x-created` if that is near the record's own time, else by the latter.
fn created_at<R: Record>(record: &R, header: Option<usize>) -> Time {
    let stamped = record.timestamp().to_millis().and_then(|ms| u64::try_from(ms).ok()).map(Time::from_millis);
    // A record without a time is as old as its first reading.
    let stamped = stamped.unwrap_or_else(now);
    let claimed = header.and_then(|at| record.headers()?.try_get(at)?.value).and_then(parse).map(Time::from_millis);
    claimed
        .filter(|claimed| claimed.since(stamped).max(stamped.since(*claimed)) <= CLOCK_DIFFERENCE_MAX)
        .unwrap_or(stamped)
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Headers that matter before anything is read.
#[derive(Default)]
struct Marks {
    /// The last `x-orig-topic`: ours begin there.
    copy: Option<usize>,
    created: Option<usize>,
}

impl Marks {
    /// Fails if a name is not text. The client library panics then, and this is the first look at the names, so that no
    /// later one can.
    fn find(headers: Option<&impl Headers>) -> Result<Self, ()> {
        let Some(headers) = headers else { return Ok(Self::default()) };
        catch_unwind(AssertUnwindSafe(|| {
            let mut marks = Self::default();
            for (at, header) in headers.iter().enumerate() {
                if !header.key.starts_with("x-") {
                    continue;
                }
                match header.key {
                    names::ORIG_TOPIC => marks.copy = Some(at),
                    names::CREATED => marks.created = Some(at),
                    _ => {}
                }
            }
            marks
        }))
        .map_err(|_| ())
    }
}

/// The headers that are not ours, in order.
fn foreign<H: Headers>(
    headers: Option<&H>,
    mark: Option<usize>,
) -> impl Iterator<Item = (&str, Option<&[u8]>)> + Clone {
    let count = headers.map_or(0, Headers::count);
    (0..count).filter_map(move |at| {
        let header = headers?.try_get(at)?;
        let ours = mark.is_some_and(|mark| at >= mark && names::is_ours(header.key));
        (!ours).then_some((header.key, header.value))
    })
}

/// Our headers as they stand on a record.
#[derive(Default)]
struct Ours<'r> {
    orig_topic: Option<&'r str>,
    orig_partition: Option<i32>,
    orig_offset: Option<i64>,
    message_id: Option<&'r str>,
    tenant: Option<&'r str>,
    created: Option<Time>,
    orig_created: Option<Time>,
    deadline: Option<Time>,
    /// `Some(None)` says that the message has none.
    orig_deadline: Option<Option<Time>>,
    attempts: Option<u32>,
    uncounted: u32,
    reconnects: u32,
    crashes: u32,
    last_crash: Option<Time>,
    replays: u32,
    first_seen: Option<Time>,
    held_ms: u64,
    last_delay_ms: u64,
    due: Option<Time>,
    reason: Option<Reason>,
    dead_at: Option<Time>,
    job: Option<u64>,
    attempt_errors: Option<&'r [u8]>,
}

impl<'r> Ours<'r> {
    fn collect<H: Headers>(headers: &'r H, mark: usize) -> Self {
        let mut ours = Self::default();
        for at in mark..headers.count() {
            let Some(header) = headers.try_get(at) else { break };
            let Some(value) = header.value else { continue };
            let time = || parse(value).map(Time::from_millis);
            let text = || std::str::from_utf8(value).ok();
            match header.key {
                names::ORIG_TOPIC => ours.orig_topic = text(),
                names::ORIG_PARTITION => ours.orig_partition = parse(value).filter(|number| *number >= 0),
                names::ORIG_OFFSET => ours.orig_offset = parse(value).filter(|number| *number >= 0),
                names::MESSAGE_ID => ours.message_id = text(),
                names::TENANT => ours.tenant = text(),
                names::CREATED => ours.created = time(),
                names::ORIG_CREATED => ours.orig_created = time(),
                names::DEADLINE => ours.deadline = time(),
                names::ORIG_DEADLINE if value == NONE.as_bytes() => ours.orig_deadline = Some(None),
                names::ORIG_DEADLINE => ours.orig_deadline = time().map(Some),
                names::ATTEMPTS => ours.attempts = parse(value),
                names::UNCOUNTED => ours.uncounted = parse(value).unwrap_or_default(),
                names::RECONNECTS => ours.reconnects = parse(value).unwrap_or_default(),
                names::CRASHES => ours.crashes = parse(value).unwrap_or_default(),
                names::LAST_CRASH => ours.last_crash = time(),
                names::REPLAYS => ours.replays = parse(value).unwrap_or_default(),
                names::FIRST_SEEN => ours.first_seen = time(),
                names::HELD_MS => ours.held_ms = parse(value).unwrap_or_default(),
                names::LAST_DELAY_MS => ours.last_delay_ms = parse(value).unwrap_or_default(),
                names::DUE => ours.due = time(),
                names::REASON => ours.reason = text().and_then(Reason::from_name),
                names::DEAD_AT => ours.dead_at = time(),
                names::JOB => ours.job = parse(value),
                names::ATTEMPT_ERRORS => ours.attempt_errors = Some(value),
                _ => {}
            }
        }
        ours
    }
}

fn parse<T: FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// `topic/partition/offset`, written without the heap: it is the id of most messages.
struct PlaceText {
    text: [u8; Self::BYTES_MAX],
    used: usize,
}

impl PlaceText {
    /// Kafka allows 249 bytes for a topic.
    const BYTES_MAX: usize = 320;

    const fn new() -> Self {
        Self { text: [0; Self::BYTES_MAX], used: 0 }
    }

    fn of(&mut self, record: &impl Record) -> &str {
        self.used = 0;
        let _ = write!(self, "{}/{}/{}", record.topic(), record.partition(), record.offset());
        std::str::from_utf8(&self.text[..self.used]).unwrap_or("?")
    }
}

impl Write for PlaceText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let free = self.text.get_mut(self.used..self.used + text.len()).ok_or(std::fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}
