//! What is asked of the writer, and what comes back to the thread that owns the store.

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

/// A verdict that needs more than a number in a list.
#[derive(Debug)]
pub struct Closing {
    pub delivery: Delivery,
    pub verdict: Verdict,
    pub attempt: Option<Attempt>,
    pub was: Was,
    pub key: Option<u64>,
    /// For a letter that dies again: the replay jobs it went through.
    pub jobs: Vec<u64>,
    /// For a letter.
    pub group: Option<Fingerprint>,
    /// For a letter: the policy that it dies under.
    pub options: Option<Bytes>,
    /// For a letter that dies again: the versions of its message that edits have replaced.
    pub replaced: Vec<ReplacedWire>,
}

/// Everything that is written to the journal.
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
    /// Letters are written anew: with other messages, or as tombstones.
    EditLetters {
        ticket: Ticket,
        letters: Vec<(u64, Stored)>,
    },
    ChangeLetters {
        ticket: Ticket,
        changed: LetterChanged,
    },
    /// Letters that died elsewhere; they get numbers of their own, one after the other.
    Import {
        ticket: Ticket,
        letters: Vec<Stored>,
        /// The first of these numbers, before the ticket is durable.
        first: Arc<OnceLock<Result<u64, IngestError>>>,
    },
    Relocate {
        ticket: Ticket,
        relocation: Relocation,
    },
    /// Segments of the journal (or of the letter log) before this position are not needed any more.
    Drop {
        journal: Option<u64>,
        letters: Option<u64>,
    },
    /// Ids of messages below this number are in the tables.
    ForgetIds {
        below: u64,
    },
}

impl Command {
    /// Whether it only brings messages that are ready at once.
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::Ingest { batch, .. } if batch.iter().all(|new| new.due.is_none()))
    }

    /// Roughly how much it adds to a batch.
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

/// What the cleaner found worth keeping in a piece of a segment.
#[derive(Debug, Default)]
pub struct Relocation {
    /// Waiting and blocked messages: flags, number and content.
    pub moves: Vec<(u8, u64, Stored)>,
    /// Letters, with the position they are at.
    pub letters: Vec<(u64, Stored, u64)>,
    /// Letters in the letter log whose state frames go away; `None`: the letter is purged.
    pub slots: Vec<(u64, Option<SlotCopy>)>,
    pub seen: Vec<Seen>,
    /// Letters that have been resolved for long enough to be forgotten.
    pub purge: Vec<u64>,
    pub bytes: usize,
}

/// Batches that are kept in memory until the owner of the store takes them in; beyond it they are read again.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// What comes back to the thread that owns the store.
#[derive(Debug)]
pub enum Note {
    Committed {
        written: Option<Written>,
        ticket: Option<Ticket>,
        /// Set if the batch holds only messages that are ready, with the number after them: nothing else follows from it.
        fresh_until: Option<u64>,
    },
    /// The tables hold what was frozen.
    Applied,
    Loaded {
        entries: Vec<(DelayKey, Pointer)>,
        limit: usize,
    },
    /// The cleaner has read a piece of a segment; `next` is where it goes on, `None` at the end.
    Scanned {
        relocation: Relocation,
        next: Option<u64>,
    },
    /// The copies of erased letters in a segment are overwritten.
    Wiped,
    Failed(EngineError),
}

impl Note {
    /// Leaves the note for the owner of the store. One that lags behind, or is not running yet, finds of a batch only
    /// where it stands in the journal: a backlog must not be held in memory.
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
