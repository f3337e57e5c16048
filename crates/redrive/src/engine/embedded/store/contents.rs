//! Reads the content of messages and letters from both logs.

use bytes::Bytes;
use redrive_core::{Fingerprint, GroupId, Message, Meta, Reason};

use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{LetterSlot, Pointer};
use crate::engine::embedded::journal::frame::Frame;
use crate::engine::embedded::journal::log::ReadError;
use crate::engine::embedded::journal::reader::Reader;
use crate::engine::embedded::journal::record::{AcceptedBody, ReplacedWire, Stored, kind};
use crate::engine::embedded::write::writer::LETTER_LOG;
use crate::engine::groups::Grouping;
use crate::engine::history::History;
use crate::engine::letter::Letter;
use crate::engine::seam::EngineError;

/// The message content of a frame.
pub(crate) struct Content {
    pub(crate) message: Message,
    pub(crate) meta: Meta,
    pub(crate) history: History,
    /// Whether it is in the line of its key already.
    pub(crate) in_line: bool,
    pub(crate) due: Option<u64>,
}

impl Content {
    /// The message in a frame of any kind; `None` if the frame contains none.
    pub(crate) fn of(frame: &Frame) -> Option<Self> {
        if frame.kind == kind::ACCEPTED {
            let body = AcceptedBody::read(frame.body.clone())?;
            return Self::fresh(body.wire).map(|fresh| Self { due: body.due, ..fresh });
        }
        let stored = Stored::read(frame.body.clone())?;
        let message = Message::from_wire(stored.wire).ok()?;
        Some(Self {
            message,
            meta: stored.meta,
            history: History::from_raw(stored.history),
            in_line: stored.key.is_some(),
            due: stored.due,
        })
    }

    pub(crate) fn fresh(wire: Bytes) -> Option<Self> {
        let message = Message::from_wire(wire).ok()?;
        let meta = Meta { created: message.created(), deadline: message.deadline(), ..Meta::default() };
        Some(Self { message, meta, history: History::default(), in_line: false, due: None })
    }
}

/// Read access to both logs of a store.
#[derive(Debug)]
pub(crate) struct Contents<D: Disk> {
    journal: Reader<D>,
    letter_log: Reader<D>,
}

impl<D: Disk> Contents<D> {
    pub(crate) fn new(journal: Reader<D>, letter_log: Reader<D>) -> Self {
        Self { journal, letter_log }
    }

    pub(crate) fn journal(&self) -> &Reader<D> {
        &self.journal
    }

    pub(crate) fn letter_log(&self) -> &Reader<D> {
        &self.letter_log
    }

    /// The content of a frame; `None` if it is damaged.
    pub(crate) fn at(&self, pointer: Pointer) -> Result<Option<Content>, EngineError> {
        if pointer.len == 0 {
            return Ok(None);
        }
        content_of(self.journal.read(pointer.at, u64::from(pointer.len)))
    }

    pub(crate) fn stored_letter(&self, slot: &LetterSlot) -> Result<Option<Stored>, EngineError> {
        match self.read_letter(slot.pointer) {
            Ok(frame) => Ok(Stored::read(frame.body)),
            Err(ReadError::Rot { .. } | ReadError::Missing { .. }) => Ok(None),
            Err(error @ ReadError::Io { .. }) => Err(error.into()),
        }
    }

    /// The versions of a letter's message replaced by edits; empty if its bytes are damaged.
    pub(crate) fn replaced(&self, slot: &LetterSlot) -> Result<Vec<ReplacedWire>, EngineError> {
        Ok(self.stored_letter(slot)?.map(|stored| stored.replaced).unwrap_or_default())
    }

    pub(crate) fn letter(
        &self,
        seq: u64,
        slot: &LetterSlot,
        grouping: &Grouping,
    ) -> Result<Letter, EngineError> {
        let stored = self.stored_letter(slot)?;
        let content = stored.and_then(|stored| {
            let group = stored.fingerprint(grouping, slot.reason);
            let message = Message::from_wire(stored.wire).ok()?;
            let edits = stored.replaced.into_iter().map(|version| version.edit).collect();
            let options = stored.options.map(|text| String::from_utf8_lossy(&text).into_owned());
            Some((message, stored.meta, History::from_raw(stored.history), group, edits, options))
        });
        let damaged = content.is_none();
        let reason = if damaged { Reason::Corrupt } else { slot.reason };
        let (message, meta, history, group, edits, options) = if let Some(content) = content {
            content
        } else {
            let group = grouping.of(reason, None);
            (damaged_message(seq)?, Meta::default(), History::default(), group, Vec::new(), None)
        };
        let meta = Meta { replays: slot.replays, ..meta };
        // The index decides in which group it is counted.
        let group = Fingerprint { group: GroupId::from_number(slot.group), ..group };
        Ok(Letter {
            id: seq,
            state: slot.state,
            reason,
            dead_at: slot.dead_at,
            job: slot.jobs.last().copied(),
            message,
            meta,
            history,
            group,
            edits,
            options,
        })
    }

    /// Reads the frame that a letter's pointer refers to, from either log.
    fn read_letter(&self, pointer: Pointer) -> Result<Frame, ReadError> {
        let log = if pointer.at & LETTER_LOG == 0 { &self.journal } else { &self.letter_log };
        log.read(pointer.at & !LETTER_LOG, u64::from(pointer.len))
    }
}

/// The content of a frame. Damage gives `None`, a failing disk an error.
pub(crate) fn content_of(frame: Result<Frame, ReadError>) -> Result<Option<Content>, EngineError> {
    match frame {
        Ok(frame) => Ok(Content::of(&frame)),
        Err(ReadError::Rot { .. } | ReadError::Missing { .. }) => Ok(None),
        Err(error @ ReadError::Io { .. }) => Err(error.into()),
    }
}

/// A placeholder for a message that cannot be read.
pub(crate) fn damaged_message(seq: u64) -> Result<Message, EngineError> {
    let message =
        Message::builder(format!("damaged-{seq}")).header("redrive-note", "the stored bytes are damaged");
    message.build().map_err(|error| EngineError::Damaged(error.to_string()))
}
