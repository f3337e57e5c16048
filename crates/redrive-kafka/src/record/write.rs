//! Converts a message and its history to the headers of its copy.

use rdkafka::message::{Header, OwnedHeaders};
use redrive_core::{Family, Reason, Time};

use super::position::PositionText;
use super::{CopyRecord, Origin, attempts, group, names};

const ERROR_BYTES_MAX: usize = 1024;
/// The value of a header for a deadline that does not exist.
pub(super) const NONE: &str = "none";
/// Takes the place of a reason on a deferred record.
pub(super) const DEFERRED: &str = "deferred";

/// Returns the headers of the record that stores `copy`: the message's own, unchanged, then ours. `from` is the record
/// that this one replaces.
///
/// A letter has all headers, because people read it. Other copies omit those that follow from the rest: each header
/// costs the client an allocation on both sides.
pub fn headers(copy: &CopyRecord, from: Option<&Origin>) -> OwnedHeaders {
    let CopyRecord { message, meta, history, origin, due, reason, dead_at, job, marks } = copy;
    let is_letter = reason.is_some();
    let mut out = Out(Some(OwnedHeaders::new_with_capacity(16)));
    for (name, value) in message.headers_or_null() {
        out.bytes(name, value);
    }

    // The mark: everything before it is not ours.
    out.text(names::ORIG_TOPIC, &origin.topic);
    out.number(names::ORIG_PARTITION, origin.partition.cast_unsigned().into());
    out.number(names::ORIG_OFFSET, origin.offset.cast_unsigned());
    out.text(names::MESSAGE_ID, message.id());
    if let Some(tenant) = message.tenant() {
        out.text(names::TENANT, tenant);
    }
    out.time(names::CREATED, Some(meta.created));
    out.time(names::ORIG_CREATED, Some(message.created()).filter(|created| *created != meta.created));
    out.time(names::DEADLINE, meta.deadline);
    if message.deadline() != meta.deadline {
        match message.deadline() {
            Some(deadline) => out.number(names::ORIG_DEADLINE, deadline.as_millis()),
            None => out.text(names::ORIG_DEADLINE, NONE),
        }
    }
    out.number(names::ATTEMPTS, meta.attempts.into());
    out.count(names::UNCOUNTED, meta.uncounted.into());
    out.count(names::RECONNECTS, meta.reconnects.into());
    out.count(names::CRASHES, meta.crashes.into());
    out.time(names::LAST_CRASH, meta.last_crash);
    if is_letter || meta.replays != 0 {
        out.number(names::REPLAYS, meta.replays.into());
    }
    out.time(names::FIRST_SEEN, meta.first_failed);
    out.count(names::HELD_MS, meta.held_ms);
    out.count(names::LAST_DELAY_MS, meta.last_delay_ms);
    out.time(names::DUE, *due);
    match reason {
        Some(reason) => out.text(names::REASON, reason.name()),
        // Why it waits, for readers of the tier.
        None if meta.deferred => out.text(names::REASON, DEFERRED),
        None => {}
    }
    out.time(names::DEAD_AT, *dead_at);
    if let Some(job) = job {
        out.number(names::JOB, *job);
    }
    if let Some(from) = from.filter(|from| is_letter || *from != origin) {
        out.text(names::FROM, PositionText::new().of_origin(from));
    }

    let tried = history.attempts();
    match (tried.last(), reason) {
        (Some(last), _) => {
            out.text(names::LAST_ERROR, attempts::start_of(&last.error, ERROR_BYTES_MAX));
            let (class, family) = (last.class.name(), last.class.family().name());
            out.text(names::ERROR_CLASS, family);
            if is_letter || class != family {
                out.text(names::CLASS, class);
            }
            out.text(names::ATTEMPT_ERRORS, &attempts::write(&tried));
        }
        // A letter that was never attempted has only its reason.
        (None, Some(reason)) => {
            out.text(names::LAST_ERROR, reason.name());
            out.text(names::ERROR_CLASS, family(*reason).name());
        }
        (None, None) => {}
    }
    out.count(names::MOVED, marks.moved.into());
    if let Some(bytes) = marks.cut {
        out.number(names::CUT, bytes);
    }
    if let Some(group) = marks.group.as_ref().filter(|_| is_letter) {
        out.text(names::GROUP, &group::write(group));
    }
    if let Some(options) = marks.options.as_ref().filter(|_| is_letter) {
        out.text(names::OPTIONS, options);
    }
    out.0.unwrap_or_default()
}

/// Returns the family of a letter that has no failed attempt.
const fn family(reason: Reason) -> Family {
    match reason {
        Reason::Permanent
        | Reason::Gone
        | Reason::PoisonPill
        | Reason::KeyBlocked
        | Reason::Corrupt
        | Reason::Cancelled
        | Reason::Imported => Family::Permanent,
        Reason::MaxRetries | Reason::TtlExceeded | Reason::HoldExpired | Reason::BudgetExhausted => {
            Family::Transient
        }
    }
}

/// `OwnedHeaders` is passed by value through each insertion, so an option holds it here.
struct Out(Option<OwnedHeaders>);

impl Out {
    fn bytes(&mut self, name: &str, value: Option<&[u8]>) {
        self.0 = self.0.take().map(|headers| headers.insert(Header { key: name, value }));
    }

    fn text(&mut self, name: &str, value: &str) {
        self.bytes(name, Some(value.as_bytes()));
    }

    fn number(&mut self, name: &str, value: u64) {
        let mut digits = [0; 20];
        self.text(name, decimal(value, &mut digits));
    }

    /// Writes a count, unless it is 0.
    fn count(&mut self, name: &str, value: u64) {
        if value != 0 {
            self.number(name, value);
        }
    }

    fn time(&mut self, name: &str, value: Option<Time>) {
        if let Some(time) = value {
            self.number(name, time.as_millis());
        }
    }
}

/// Formats a number without allocating: a copy has a dozen of these.
pub(super) fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[at..]).unwrap_or_default()
}
