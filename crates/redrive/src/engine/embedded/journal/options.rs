//! What is asked of a log when it is opened, and what is answered.

use std::ops::Range;

use super::frame::Rot;
use super::segment::{self, FORMAT_VERSION, SegmentHeader};
use super::watermark::Extent;

#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Names the log within its directory.
    pub prefix: String,
    /// A segment that has reached this size gets no further batch.
    pub segment_bytes: u64,
    pub store_id: [u8; 16],
    /// Go on although a stretch of the log is missing; it is reported.
    pub accept_missing: bool,
    /// What must be there, as far as is known outside of the log.
    pub known: Extent,
    /// Segments that end below are not searched for damage when the log is opened. Reading finds it all the same.
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

    /// Nothing of the log was ever used but its first header.
    pub(crate) fn is_known_to_be_empty(&self) -> bool {
        self.known.end <= SegmentHeader::len_of(&self.prefix)
    }

    /// The segment that should hold this position.
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
    /// Bytes of torn writes cut off the end.
    pub cut_bytes: u64,
    /// Damage to frames that had been durable, in order.
    pub rot: Vec<Rot>,
    /// Stretches that no file holds any more; only with `accept_missing`.
    pub missing: Vec<Range<u64>>,
    /// Segments that an interrupted removal had left behind.
    pub leftovers: usize,
    pub log_start: u64,
    pub end: u64,
    /// Equal to `end`: what was kept has been synced.
    pub durable: u64,
    /// Size of the log in bytes.
    pub bytes: u64,
}
