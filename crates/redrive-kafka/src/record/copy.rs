//! A record that Redrive has written, and the result of reading any record.

use std::sync::Arc;

use redrive::internal::engine::History;
use redrive_core::{Fingerprint, Message, Meta, Reason, Time};

use super::origin::Origin;

/// A record that Redrive has written: a message with its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRecord {
    pub message: Message,
    pub meta: Meta,
    pub history: History,
    /// The source record of the message. It identifies the message permanently.
    pub origin: Origin,
    pub due: Option<Time>,
    /// Set on dead letters.
    pub reason: Option<Reason>,
    pub dead_at: Option<Time>,
    /// The latest replay job that requeued it.
    pub job: Option<u64>,
    pub marks: LetterMarks,
}

/// Properties that only the record of a dead letter has.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LetterMarks {
    /// The size of the whole payload in bytes, if Kafka refused the record and it was truncated.
    pub cut: Option<u64>,
    /// Whether an old letter was rewritten to the end of the topic, so that the records before it could be deleted.
    pub moved: bool,
    /// The group it belongs to. Records of older versions have none.
    pub group: Option<Fingerprint>,
    /// The resolved policy at its death, as JSON. Records of older versions have none.
    pub options: Option<Arc<str>>,
}

/// The kind of a record; a complete set of `x-orig-*` headers makes it a copy.
#[derive(Debug)]
pub enum Read {
    Fresh(Message, Meta),
    Copy(Box<CopyRecord>),
}

/// A record that cannot be a message, because a part of it exceeds the limits of a message. It is never skipped
/// silently: `rest` holds what can be kept of it, and the origin of that names the whole record.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Unreadable {
    /// `topic/partition/offset` of the record.
    pub place: String,
    pub problem: String,
    /// To be settled as dead for [`Reason::Corrupt`].
    pub rest: Box<CopyRecord>,
}
