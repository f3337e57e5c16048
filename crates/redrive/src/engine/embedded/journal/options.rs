//! The options for opening a log, and the report on how it was found.

use std::ops::Range;

use super::frame::Rot;
use super::segment::{self, FORMAT_VERSION, SegmentHeader};
use super::watermark::Extent;

#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The prefix of its file names in the directory.
    pub prefix: String,
    /// A segment of at least this size gets no further batch.
    pub segment_bytes: u64,
    pub store_id: [u8; 16],
    /// Opens the log even if a part of it is missing; the report lists what.
    pub accept_missing: bool,
    /// What must exist, as far as is known outside of the log.
    pub known: Extent,
    /// Segments that end below this are not searched for damage when the log is opened. Reading finds it anyway.
    pub verify_from: u64,
}

impl LogOptions {
    pub fn new(prefix: impl Into<String>, segment_bytes: u64, store_id: [u8; 16]) -> Self {
        Self {
            prefix: prefix.into(),
            segment_bytes,
            store_id,
            accept_missing: false,
            known: Extent::default(),
            verify_from: 0,
        }
    }

    /// Whether nothing was ever written to the log but its first header.
    pub(crate) fn is_known_to_be_empty(&self) -> bool {
        self.known.end <= SegmentHeader::len_of(&self.prefix)
    }

    /// The name of the segment with this base.
    pub(crate) fn file_name(&self, base: u64) -> String {
        segment::file_name(&self.prefix, base)
    }

    pub(crate) fn segment_header(&self, base: u64, log_start: u64) -> SegmentHeader {
        let (store_id, prefix) = (self.store_id, self.prefix.clone());
        SegmentHeader { version: FORMAT_VERSION, base, log_start, store_id, prefix }
    }
}

/// What was found when the log was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Bytes of torn writes truncated at the end.
    pub cut_bytes: u64,
    /// Damage to frames that were durable, in order.
    pub rot: Vec<Rot>,
    /// Ranges that no file holds any more; only with `accept_missing`.
    pub missing: Vec<Range<u64>>,
    /// Segments left by an interrupted removal.
    pub leftovers: usize,
    pub log_start: u64,
    pub end: u64,
    /// Equal to `end`, because everything kept has been synced.
    pub durable: u64,
    /// Size of the log in bytes.
    pub bytes: u64,
}
