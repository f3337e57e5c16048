//! The result of reading a store: segments, frames, damage. Plain data.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::engine::embedded::journal::frame::KIND_LOG;
use crate::engine::embedded::journal::record::kind;
use crate::engine::seam::EngineError;

/// What a store holds and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub pipeline: String,
    pub path: PathBuf,
    pub format: u32,
    pub store_id: String,
    /// The process that has the directory open now.
    pub owner: Option<u32>,
    pub journal: LogInspection,
    pub letter_log: LogInspection,
    /// Pending messages.
    pub pending: u64,
    /// How many letters are in each state.
    pub letters: BTreeMap<&'static str, u64>,
    /// What is wrong with the watermark file.
    pub watermark: Option<&'static str>,
    /// What is wrong with the index, if it was checked ([`super::store::check_index`]).
    pub index: Option<String>,
}

/// One of the two logs of a store.
#[derive(Clone, Debug, Default)]
pub struct LogInspection {
    pub segments: Vec<SegmentInspection>,
    /// The number of frames and their bytes, by kind.
    pub frames: BTreeMap<&'static str, (u64, u64)>,
    pub batches: u64,
    pub damage: Vec<Damage>,
    /// Bytes at the end that were torn by a crash or are being written now. They were never acknowledged.
    pub unfinished_bytes: u64,
    /// Missing ranges that were not dropped on purpose.
    pub missing: Vec<Range<u64>>,
    /// Dropped segments whose files still exist.
    pub leftovers: usize,
    /// Files that disappeared while they were read, which is normal while the owner runs.
    pub vanished: usize,
    pub start: u64,
    pub end: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInspection {
    pub name: String,
    pub base: u64,
    pub bytes: u64,
    pub frames: u64,
}

/// A range that was durable and has become unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub segment: String,
    pub position: u64,
    /// The offset in the file.
    pub offset: u64,
    pub bytes: u64,
    /// What was there, if its header is intact: the kind of frame and the number of the message.
    pub was: Option<(&'static str, u64)>,
}

/// One frame, for a complete listing. Never contains a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub log: &'static str,
    pub position: u64,
    pub kind: &'static str,
    /// The number of the message, if the frame is about one.
    pub number: u64,
    pub bytes: u64,
    /// The id of the message, if the frame contains it.
    pub id: Option<String>,
}

impl Inspection {
    pub fn is_damaged(&self) -> bool {
        let logs = [&self.journal, &self.letter_log];
        let in_logs = logs.iter().any(|log| !log.damage.is_empty() || !log.missing.is_empty());
        in_logs || self.watermark.is_some() || self.index.is_some()
    }
}

/// The name of a kind of frame.
pub fn kind_name(kind: u8) -> &'static str {
    match kind {
        KIND_LOG => "log",
        kind::ACCEPTED => "accepted",
        kind::DONE => "done",
        kind::ENDED => "ended",
        kind::WAITING => "waiting",
        kind::DEAD => "dead",
        kind::BLOCKED => "blocked",
        kind::MOVED => "moved",
        kind::LETTER_STATE => "letter_state",
        kind::LETTER_MOVED => "letter_moved",
        kind::PURGED => "purged",
        kind::SEEN => "seen",
        kind::LETTER_SLOT => "letter_slot",
        _ => "unknown",
    }
}

pub(crate) fn failed(what: &str, path: &Path, error: &io::Error) -> EngineError {
    EngineError::Storage(format!("{what} {}: {error}", path.display()))
}
