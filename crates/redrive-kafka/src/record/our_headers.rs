//! The headers of a record, read in one pass, and which of them are ours.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;

use rdkafka::message::Headers;
use redrive_core::{Reason, Time};

use super::write::{DEFERRED, NONE};
use super::{LetterMarks, group, names};

/// A header's name and value.
pub type Given<'r> = (&'r str, Option<&'r [u8]>);

/// The name of a header is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHeaderName;

/// Returns all headers of a record. Each access is a call into the client library, so each header is accessed once.
/// Fails if a name is not text, for which the library panics.
pub fn all<H: Headers>(headers: Option<&H>) -> Result<Vec<Given<'_>>, BadHeaderName> {
    let Some(headers) = headers else { return Ok(Vec::new()) };
    catch_unwind(AssertUnwindSafe(|| {
        let mut all = Vec::with_capacity(headers.count());
        all.extend(headers.iter().map(|header| (header.key, header.value)));
        all
    }))
    .map_err(|_| BadHeaderName)
}

/// The deadline in the message, relative to the one that applies.
#[derive(Clone, Copy, Default)]
pub(super) enum OrigDeadline {
    #[default]
    Same,
    None,
    At(Time),
}

impl OrigDeadline {
    pub(super) const fn beside(self, applies: Option<Time>) -> Option<Time> {
        match self {
            Self::Same => applies,
            Self::None => None,
            Self::At(time) => Some(time),
        }
    }
}

/// Our headers as they are on a record.
#[derive(Default)]
pub(super) struct Ours<'r> {
    pub(super) orig_topic: Option<&'r str>,
    pub(super) orig_partition: Option<i32>,
    pub(super) orig_offset: Option<i64>,
    pub(super) message_id: Option<&'r str>,
    pub(super) tenant: Option<&'r str>,
    pub(super) created: Option<Time>,
    pub(super) orig_created: Option<Time>,
    pub(super) deadline: Option<Time>,
    pub(super) orig_deadline: OrigDeadline,
    pub(super) attempts: Option<u32>,
    pub(super) uncounted: u32,
    pub(super) reconnects: u32,
    pub(super) crashes: u32,
    pub(super) last_crash: Option<Time>,
    pub(super) replays: u32,
    pub(super) first_seen: Option<Time>,
    pub(super) held_ms: u64,
    pub(super) last_delay_ms: u64,
    pub(super) due: Option<Time>,
    pub(super) reason: Option<Reason>,
    pub(super) deferred: bool,
    pub(super) dead_at: Option<Time>,
    pub(super) job: Option<u64>,
    pub(super) attempt_errors: Option<&'r [u8]>,
    pub(super) marks: LetterMarks,
    /// Headers that another tool has appended.
    pub(super) appended: Vec<Given<'r>>,
}

impl<'r> Ours<'r> {
    /// Collects them from the headers after the mark.
    pub(super) fn collect(headers: &[Given<'r>]) -> Self {
        let mut ours = Self::default();
        for (name, given) in headers {
            let Some(value) = *given else {
                if !names::is_ours(name) {
                    ours.appended.push((name, None));
                }
                continue;
            };
            let time = || parse(value).map(Time::from_millis);
            let text = || std::str::from_utf8(value).ok();
            match *name {
                names::ORIG_TOPIC => ours.orig_topic = text(),
                names::ORIG_PARTITION => ours.orig_partition = parse(value).filter(|number| *number >= 0),
                names::ORIG_OFFSET => ours.orig_offset = parse(value).filter(|number| *number >= 0),
                names::MESSAGE_ID => ours.message_id = text(),
                names::TENANT => ours.tenant = text(),
                names::CREATED => ours.created = time(),
                names::ORIG_CREATED => ours.orig_created = time(),
                names::DEADLINE => ours.deadline = time(),
                names::ORIG_DEADLINE if value == NONE.as_bytes() => ours.orig_deadline = OrigDeadline::None,
                names::ORIG_DEADLINE => {
                    ours.orig_deadline = time().map_or(OrigDeadline::Same, OrigDeadline::At);
                }
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
                names::REASON if value == DEFERRED.as_bytes() => ours.deferred = true,
                names::REASON => ours.reason = text().and_then(Reason::from_name),
                names::DEAD_AT => ours.dead_at = time(),
                names::JOB => ours.job = parse(value),
                names::CUT => ours.marks.cut = parse(value),
                names::MOVED => ours.marks.moved = true,
                names::GROUP => ours.marks.group = group::read(value),
                names::OPTIONS => ours.marks.options = text().map(Arc::from),
                names::ATTEMPT_ERRORS => ours.attempt_errors = Some(value),
                // `x-from` is read by `Replaces`; the others are for people only.
                names::FROM | names::LAST_ERROR | names::ERROR_CLASS | names::CLASS => {}
                _ => ours.appended.push((name, Some(value))),
            }
        }
        ours
    }
}

pub(super) fn parse<T: FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
