//! A dead letter: a parked message with its history, and the states it can be in.

#![warn(missing_docs)]

use bytes::Bytes;
use redrive_core::{Class, Fingerprint, Message, Meta, Reason, Time};

use super::continued::accepted_id;
use super::history::{Attempt, History};

/// `open → replaying → succeeded | open again | discarded → open (undo)`; all but `replaying` → `erased`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LetterState {
    /// It waits for a decision.
    Open,
    /// It was requeued and is not delivered yet.
    Replaying,
    /// It was delivered after a replay.
    Succeeded,
    /// It was given up.
    Discarded,
    /// Its content is gone for good; only a tombstone is left.
    Erased,
}

impl LetterState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Open, Self::Replaying, Self::Succeeded, Self::Discarded, Self::Erased];

    /// The name in filters and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Replaying => "replaying",
            Self::Succeeded => "succeeded",
            Self::Discarded => "discarded",
            Self::Erased => "erased",
        }
    }

    /// The stored code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Replaying => 2,
            Self::Succeeded => 3,
            Self::Discarded => 4,
            Self::Erased => 5,
        }
    }

    /// The state with this stored code.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Open),
            2 => Some(Self::Replaying),
            3 => Some(Self::Succeeded),
            4 => Some(Self::Discarded),
            5 => Some(Self::Erased),
            _ => None,
        }
    }
}

/// A message that was given up, with the reason and its attempts.
///
/// ```
/// # use redrive::{Failure, LetterState, MemoryStores, Message, Pipeline, Reason, Redrive};
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// async fn refuse(_: &Message) -> Result<(), Failure> {
///     Err(Failure::permanent("no such customer"))
/// }
/// let redrive = Redrive::builder()
///     .engine(MemoryStores::new())
///     .pipeline(Pipeline::new("orders").handler(refuse))
///     .build()?;
/// let orders = redrive.pipeline("orders").ok_or("no such pipeline")?;
/// orders.ingest([Message::builder("o-1").build()?]).await?;
/// let mut letters = Vec::new();
/// let until_dead = async {
///     while letters.is_empty() {
///         letters = orders.letters(Some(LetterState::Open), None, 10).await.unwrap_or_default();
///         tokio::task::yield_now().await;
///     }
/// };
/// redrive.run_until(until_dead).await?;
/// assert_eq!((letters[0].message.id(), letters[0].reason), ("o-1", Reason::Permanent));
/// assert_eq!(letters[0].history.attempts()[0].error, "no such customer");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Letter {
    /// The message's number; stable over all replays.
    pub id: u64,
    /// The state of the letter.
    pub state: LetterState,
    /// Why it was given up.
    pub reason: Reason,
    /// When it was given up.
    pub dead_at: Time,
    /// The job that replayed it last.
    pub job: Option<u64>,
    /// The message as it would be delivered.
    pub message: Message,
    /// The summary of its attempts as of its last death. During and after a replay, an engine may show a later one.
    pub meta: Meta,
    /// Its attempts.
    pub history: History,
    /// The group it is counted in, with the title it was stored with.
    pub group: Fingerprint,
    /// The edits of its message, the latest last; empty if the message is unchanged.
    pub edits: Vec<String>,
    /// The resolved policy at its death, as JSON; `None` for letters of versions that did not store it.
    pub options: Option<String>,
}

/// When the message first crashed: the first time its handler, its process or its receiver ended while it ran, as far
/// as known.
pub(crate) fn first_crash(meta: &Meta, history: &[Attempt]) -> Option<Time> {
    if meta.crashes == 0 {
        return None;
    }
    let first = match history.first() {
        Some(attempt) if attempt.class != Class::Crash => {
            history.iter().find(|attempt| attempt.class == Class::Crash).map(|attempt| attempt.at)
        }
        // The first crash of a suspect is not recorded as an attempt, but it is its first failure.
        _ => meta.first_failed,
    };
    first.or(meta.last_crash)
}

impl Letter {
    /// When it first crashed its handler, process or receiver, as far as known; `None` if it never did.
    pub fn first_crash(&self) -> Option<Time> {
        first_crash(&self.meta, &self.history.attempts())
    }

    /// The id under which its message was accepted. Edits may have changed it since.
    pub fn accepted_id(&self) -> &str {
        accepted_id(self.message.id(), &self.edits)
    }

    /// Whether it belongs to the message with this id: the current id, or the one it was accepted under.
    pub fn is_of(&self, id: &str) -> bool {
        self.message.id() == id || self.accepted_id() == id
    }

    /// The bytes of message and history, which make up nearly all of a large letter.
    pub fn size(&self) -> usize {
        self.message.wire().len() + self.history.raw().len()
    }

    /// Drops the payload of its message and frees its memory.
    #[must_use]
    pub fn without_payload(self) -> Self {
        // The history may share its buffer with the payload.
        let history = History::from_raw(Bytes::copy_from_slice(self.history.raw()));
        Self { message: stripped(&self.message).unwrap_or(self.message), history, ..self }
    }
}

fn stripped(message: &Message) -> Option<Message> {
    let mut builder = Message::builder(message.id()).created(message.created());
    if let Some(key) = message.key() {
        builder = builder.key(key.to_vec());
    }
    if let Some(tenant) = message.tenant() {
        builder = builder.tenant(tenant);
    }
    if let Some(deadline) = message.deadline() {
        builder = builder.deadline(deadline);
    }
    for (name, value) in message.headers_or_null() {
        builder = match value {
            Some(value) => builder.header(name, value.to_vec()),
            None => builder.null_header(name),
        };
    }
    builder.build().ok()
}

/// A [`LetterScan`] ends with the letter that brings it to about this many bytes.
pub const SCAN_BYTES: usize = 8 << 20;

/// One page of a scan over all letters.
#[derive(Clone, Debug, Default)]
pub struct LetterScan {
    /// The letters found.
    pub letters: Vec<Letter>,
    /// The last letter that was looked at, from which the scan goes on; `None` at the end.
    pub next: Option<u64>,
    /// How many letters were looked at.
    pub scanned: u64,
}

/// The state of a letter with regard to a replay job, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterStanding {
    /// The state of the letter.
    pub state: LetterState,
    /// When it was given up.
    pub dead_at: Time,
    /// How often it was replayed.
    pub replays: u32,
    /// Whether this job has requeued it.
    pub in_job: bool,
    /// Whether no other job has requeued it since.
    pub is_last_job: bool,
}

/// A replay of a frozen selection. It requeues each letter at most once, even if it is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayJob {
    /// The id of the job.
    pub id: u64,
    /// When the letters come due; the caller does the pacing.
    pub due: Time,
    /// Whether to take letters too that were replayed [`REPLAYS_MAX`] times.
    pub force: bool,
    /// Where letters are requeued.
    pub target: ReplayTarget,
}

/// Where letters are requeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ReplayTarget {
    /// Only to this pipeline.
    #[default]
    Pipeline,
    /// To the topic they came from, where every consumer group gets them again. On an engine that is its own source,
    /// both targets mean the same.
    Source,
}

impl ReplayTarget {
    /// All targets.
    pub const ALL: [Self; 2] = [Self::Pipeline, Self::Source];

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Source => "source",
        }
    }

    /// The target with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }
}

/// A letter that was replayed this often needs `force`.
pub const REPLAYS_MAX: u32 = 3;

/// Why a letter was or was not requeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayAnswer {
    /// It was requeued.
    Replayed,
    /// This job has replayed it before.
    Already,
    /// There is no such letter.
    NotFound,
    /// It is in another replay, succeeded, discarded or erased.
    NotOpen(LetterState),
    /// It was replayed too often and needs `force`.
    TooOften {
        /// How often it was replayed.
        replays: u32,
    },
    /// Its stored bytes cannot be read, so there is nothing to deliver.
    Damaged,
}

/// An action on a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterChange {
    /// Discards an open letter.
    Discard,
    /// Undoes a discard.
    Undo,
}

impl LetterChange {
    /// The state a letter must be in, and the state it gets.
    pub const fn states(self) -> (LetterState, LetterState) {
        match self {
            Self::Discard => (LetterState::Open, LetterState::Discarded),
            Self::Undo => (LetterState::Discarded, LetterState::Open),
        }
    }
}
