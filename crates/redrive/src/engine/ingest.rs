//! Where new messages enter an engine. Handles are shared between threads; an answer means that the batch is durable.

#![warn(missing_docs)]

use std::time::Duration;

use redrive_core::{Message, Time};
use tokio::sync::oneshot;

/// A message to be accepted, with an optional due time.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The message.
    pub message: Message,
    /// The earliest start; `None` means at once.
    pub due: Option<Time>,
}

/// How far in the future a message may be due. A later time is taken for a mistake; the message would wait forever.
pub const DUE_MAX: Duration = Duration::from_hours(365 * 24);

/// The outcome for an offered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It was stored.
    New {
        /// Its number in the pipeline.
        seq: u64,
    },
    /// Its id was accepted before, within the window.
    Duplicate {
        /// The number it got then.
        seq: u64,
    },
}

/// Why a batch was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IngestError {
    /// The disk is nearly full. Nothing of the batch was accepted; try again later.
    #[error(
        "the disk is nearly full: {free_bytes} bytes left, {reserve_bytes} are kept for settling; ingest resumes by itself"
    )]
    DiskFull {
        /// Free bytes on the disk.
        free_bytes: u64,
        /// Bytes that have to stay free.
        reserve_bytes: u64,
    },
    /// The batch does not fit into `max_pending`. Nothing of it was accepted.
    #[error(
        "{pending} messages are pending and at most {max} may be; nothing was accepted, try again when some are done, \
         or raise max_pending"
    )]
    TooMany {
        /// Pending messages.
        pending: u64,
        /// The limit.
        max: u64,
    },
    /// A message is due too far in the future. Nothing of the batch was accepted.
    #[error("message `{id}` is due in more than 365 days; a message may be delayed for that long at most")]
    TooFar {
        /// The message.
        id: String,
    },
    /// Too many batches are waiting to be written.
    #[error("too much is waiting to be written; try again in a moment")]
    Busy,
    /// The run is ending, or the pipeline gets its messages elsewhere (Kafka). Nothing of the batch was accepted.
    #[error(
        "the pipeline takes no messages: its run has ended, or they come from elsewhere; nothing was accepted"
    )]
    NotTaking,
    /// The pipeline has stopped. Whether the batch was accepted is unknown.
    #[error("the engine has stopped; whether the batch was accepted is unknown")]
    Stopped,
    /// The store failed.
    #[error("storage failed: {0}")]
    Storage(String),
}

/// The answer to a batch.
pub type IngestAnswer = Result<Vec<Accepted>, IngestError>;

/// Offers messages to one pipeline.
pub trait Ingest: Send + Sync {
    /// Offers a batch, all or nothing. The answer comes once the batch is durable.
    fn submit(&self, batch: Vec<NewMessage>, now: Time) -> oneshot::Receiver<IngestAnswer>;
}
