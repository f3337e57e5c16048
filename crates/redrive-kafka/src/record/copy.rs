//! A record that Redrive has written, and what reading any record gives.

use std::sync::Arc;

use redrive::internal::engine::History;
use redrive_core::{Fingerprint, Message, Meta, Reason, Time};

use super::origin::Origin;

/// A record that Redrive has written itself: a message that was tried before, with its whole story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRecord {
    pub message: Message,
    pub meta: Meta,
    pub history: History,
    /// Where the message came from. It names the message for ever.
    pub origin: Origin,
    pub due: Option<Time>,
    /// Set on dead letters.
    pub reason: Option<Reason>,
    pub dead_at: Option<Time>,
    /// The replay job that put it back last.
    pub job: Option<u64>,
    pub marks: LetterMarks,
}

/// What is special about the record of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LetterMarks {
    /// Kafka refuses the whole record, so a part of it is left out. How many bytes the whole payload has.
    pub cut: Option<u64>,
    /// An old letter was written again at the end of the topic, so that what lay before it could be deleted.
    pub moved: bool,
    /// Which letters it belongs to; none of those that an older program wrote has one.
    pub group: Option<Fingerprint>,
    /// The resolved policy at its death, as JSON; none of those that an older program wrote has one.
    pub options: Option<Arc<str>>,
}

/// What a record is; a complete set of `x-orig-*` headers makes it a copy.
#[derive(Debug)]
pub enum Read {
    Fresh(Message, Meta),
    Copy(Box<CopyRecord>),
}

/// A record that cannot be a message: a part of it is beyond what a message may have. It is never skipped silently; what
/// can be kept of it is in `rest`, and its origin says where the whole record lies.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Unreadable {
    /// `topic/partition/offset` of the record.
    pub place: String,
    pub problem: String,
    /// To be settled as dead for [`Reason::Corrupt`].
    pub rest: Box<CopyRecord>,
}
