//! Commands to the writer, and the notes that come back to the thread that owns the store.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use redrive_core::{Fingerprint, Time};
use tokio::sync::oneshot;

use super::mailbox::Mailbox;
use crate::engine::delay::DelayKey;
use crate::engine::embedded::index::tables::Pointer;
use crate::engine::embedded::journal::batch::Written;
use crate::engine::embedded::journal::record::{
    Blocked, LetterChanged, ReplacedWire, Seen, SlotCopy, Stored, Was,
};
use crate::engine::history::Attempt;
use crate::engine::ingest::{IngestAnswer, IngestError, NewMessage};
use crate::engine::seam::{Delivery, EngineError, Ticket, Verdict};

/// A verdict that needs more than its number in a list.
#[derive(Debug)]
pub struct Closing {
    pub delivery: Delivery,
    pub verdict: Verdict,
    pub attempt: Option<Attempt>,
    pub was: Was,
    pub key: Option<u64>,
    /// For a letter that dies again: its replay jobs.
    pub jobs: Vec<u64>,
    /// For a letter.
    pub group: Option<Fingerprint>,
    /// For a letter: the policy under which it dies.
    pub options: Option<Bytes>,
    /// For a letter that dies again: the versions of its message replaced by edits.
    pub replaced: Vec<ReplacedWire>,
}

/// What the writer can be asked to write to the journal.
#[derive(Debug)]
pub enum Command {
    Ingest {
        batch: Vec<NewMessage>,
        now: Time,
        answer: oneshot::Sender<IngestAnswer>,
    },
    Settle {
        ticket: Ticket,
        done: Vec<u64>,
        closings: Vec<Closing>,
    },
    Block(Vec<Blocked>),
    Replay {
        ticket: Ticket,
        letters: Vec<(u64, Stored)>,
    },
    /// Rewrites letters with new messages, or as tombstones.
    EditLetters {
        ticket: Ticket,
        letters: Vec<(u64, Stored)>,
    },
    ChangeLetters {
        ticket: Ticket,
        changed: LetterChanged,
    },
    /// Imports letters that died elsewhere; they get consecutive numbers of their own.
    Import {
        ticket: Ticket,
        letters: Vec<Stored>,
        /// The first of these numbers, set before the ticket is durable.
        first: Arc<OnceLock<Result<u64, IngestError>>>,
    },
    Relocate {
        ticket: Ticket,
        relocation: Relocation,
    },
    /// Drops segments of the journal (or of the letter log) before this position, which are no longer needed.
    Drop {
        journal: Option<u64>,
        letters: Option<u64>,
    },
    /// Forgets ids of messages below this number, which are in the tables now.
    ForgetIds {
        below: u64,
    },
}

impl Command {
    /// Whether it only adds messages that are ready at once.
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::Ingest { batch, .. } if batch.iter().all(|new| new.due.is_none()))
    }

    /// The approximate number of bytes it adds to a batch.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Ingest { batch, .. } => batch.iter().map(|new| new.message.wire().len() + 40).sum(),
            Self::Settle { done, closings, .. } => {
                let full = |closing: &Closing| closing.delivery.message.wire().len() + 200;
                done.len() * 8 + closings.iter().map(full).sum::<usize>()
            }
            Self::Relocate { relocation, .. } => relocation.bytes,
            Self::Block(blocked) => blocked.len() * Blocked::BYTES,
            Self::Replay { letters, .. } | Self::EditLetters { letters, .. } => {
                letters.iter().map(|(_, stored)| stored.len_hint()).sum()
            }
            Self::ChangeLetters { changed, .. } => changed.seqs.len() * 8,
            Self::Import { letters, .. } => letters.iter().map(Stored::len_hint).sum(),
            Self::Drop { .. } | Self::ForgetIds { .. } => 0,
        }
    }
}

/// What the cleaner found to keep in a piece of a segment.
#[derive(Debug, Default)]
pub struct Relocation {
    /// Waiting and blocked messages: flags, number and content.
    pub moves: Vec<(u8, u64, Stored)>,
    /// Letters, each with its position.
    pub letters: Vec<(u64, Stored, u64)>,
    /// Letters in the letter log whose state frames are dropped; `None`: the letter is purged.
    pub slots: Vec<(u64, Option<SlotCopy>)>,
    pub seen: Vec<Seen>,
    /// Letters resolved long enough ago to be purged.
    pub purge: Vec<u64>,
    pub bytes: usize,
}

/// The size of the batches kept in memory for the owner of the store; beyond that, batches are read again from the
/// journal.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// What comes back to the thread that owns the store.
#[derive(Debug)]
pub enum Note {
    Committed {
        written: Option<Written>,
        ticket: Option<Ticket>,
        /// Set if the batch holds only ready messages: the number after them. Nothing else follows from such a batch.
        fresh_until: Option<u64>,
    },
    /// The frozen changes are in the tables.
    Applied,
    Loaded {
        entries: Vec<(DelayKey, Pointer)>,
        limit: usize,
    },
    /// The cleaner has read a piece of a segment; `next` is where it continues, `None` at the end.
    Scanned {
        relocation: Relocation,
        next: Option<u64>,
    },
    /// The copies of erased letters in a segment are overwritten.
    Wiped,
    Failed(EngineError),
}

impl Note {
    /// Posts the note to the owner of the store. If the owner lags behind or is not running yet, the note holds only
    /// the position of the batch in the journal, so that a backlog is not held in memory.
    pub fn leave(mut self, notes: &Mailbox<Self>) {
        let mut bytes = size_of::<Self>();
        if let Self::Committed { written: Some(written), .. } = &mut self {
            if notes.bytes() > UNREAD_BYTES_MAX {
                written.bytes = Bytes::new();
            }
            bytes += written.bytes.len();
        }
        notes.post(self, bytes);
    }
}
