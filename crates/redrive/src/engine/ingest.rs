//! Where new messages enter an engine. Handles are shared between threads; an answer means: it is durable.

#![warn(missing_docs)]

use std::time::Duration;

use redrive_core::{Message, Time};
use tokio::sync::oneshot;

/// A message on its way in, now or not before `due`.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The message.
    pub message: Message,
    /// Not before this time; `None` is at once.
    pub due: Option<Time>,
}

/// The furthest a message may be due in the future. Whatever is later is a slip, and would wait for ever.
pub const DUE_MAX: Duration = Duration::from_hours(365 * 24);

/// What became of an offered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It was stored.
    New {
        /// Its number in the pipeline.
        seq: u64,
    },
    /// Its id was accepted before, within the window.
    Duplicate {
        /// The number it was given then.
        seq: u64,
    },
}

/// Why messages were not taken. None of the batch was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IngestError {
    /// Nothing of the batch was accepted; try again later.
    /// The disk is nearly full.
    #[error(
        "the disk is nearly full: {free_bytes} bytes left, {reserve_bytes} are kept for settling; ingest resumes by itself"
    )]
    DiskFull {
        /// What is left on the disk.
        free_bytes: u64,
        /// What has to stay free.
        reserve_bytes: u64,
    },
    /// Nothing of the batch was accepted: it would not fit beside what is pending.
    /// As many messages wait as may.
    #[error(
        "{pending} messages are pending and at most {max} may be; nothing was accepted, try again when some are done, \
         or raise max_pending"
    )]
    TooMany {
        /// Messages that wait.
        pending: u64,
        /// How many may.
        max: u64,
    },
    /// Nothing of the batch was accepted.
    #[error("message `{id}` is due in more than 365 days; a message may be delayed for that long at most")]
    TooFar {
        /// The message.
        id: String,
    },
    /// Too many batches are on their way.
    #[error("too much is waiting to be written; try again in a moment")]
    Busy,
    /// The run is ending, or the messages of the pipeline come from elsewhere (Kafka). Nothing of the batch was accepted.
    #[error(
        "the pipeline takes no messages: its run has ended, or they come from elsewhere; nothing was accepted"
    )]
    NotTaking,
    /// The pipeline has stopped.
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
    /// Offers a batch, all or nothing. The answer comes when the batch is durable.
    fn submit(&self, batch: Vec<NewMessage>, now: Time) -> oneshot::Receiver<IngestAnswer>;
}
