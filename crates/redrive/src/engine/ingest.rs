//! Where new messages enter an engine. Handles are shared between threads; an answer means: it is durable.

use std::time::Duration;

use redrive_core::{Message, Time};
use tokio::sync::oneshot;

/// A message on its way in, now or not before `due`.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub message: Message,
    pub due: Option<Time>,
}

/// The furthest a message may be due in the future. Whatever is later is a slip, and would wait for ever.
pub const DUE_MAX: Duration = Duration::from_hours(365 * 24);

/// What became of an offered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    New {
        seq: u64,
    },
    /// Its id was accepted before, within the window.
    Duplicate {
        seq: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// Nothing of the batch was accepted; try again later.
    #[error(
        "the disk is nearly full: {free_bytes} bytes left, {reserve_bytes} are kept for settling; ingest resumes by itself"
    )]
    DiskFull { free_bytes: u64, reserve_bytes: u64 },
    /// Nothing of the batch was accepted: it would not fit beside what is pending.
    #[error(
        "{pending} messages are pending and at most {max} may be; nothing was accepted, try again when some are done, \
         or raise max_pending"
    )]
    TooMany { pending: u64, max: u64 },
    /// Nothing of the batch was accepted.
    #[error("message `{id}` is due in more than 365 days; a message may be delayed for that long at most")]
    TooFar { id: String },
    #[error("too much is waiting to be written; try again in a moment")]
    Busy,
    /// Surely nothing of the batch was accepted.
    #[error(
        "the pipeline is closed: its run has ended, or its messages come from elsewhere; nothing was accepted"
    )]
    Closed,
    #[error("the engine has stopped; whether the batch was accepted is unknown")]
    Stopped,
    #[error("storage failed: {0}")]
    Storage(String),
}

pub type IngestAnswer = Result<Vec<Accepted>, IngestError>;

/// Offers messages to one pipeline.
pub trait Ingest: Send + Sync {
    /// Offers a batch, all or nothing. The answer comes when the batch is durable.
    fn submit(&self, batch: Vec<NewMessage>, now: Time) -> oneshot::Receiver<IngestAnswer>;
}
