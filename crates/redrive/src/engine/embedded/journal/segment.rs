//! A segment: one file of the log, named by its base position, and the two kinds of frames of the log itself.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::LogError;
use super::frame::{self, Frame, KIND_LOG, Seal};
use crate::engine::embedded::disk::real::{Disk, DiskFile};

/// The newest format that this version reads and writes.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// From this format on, a log always has a watermark.
pub(crate) const WATERMARK_SINCE: u32 = 2;

/// Flags of frames of [`KIND_LOG`].
const FLAG_BATCH: u8 = 0;
pub(crate) const FLAG_SEGMENT: u8 = 1;

const SEGMENT_FIXED_BYTES: usize = 4 + 8 + 8 + 16;
const BATCH_BODY_BYTES: usize = 40;
/// The size of a batch header.
pub(crate) const BATCH_HEADER_BYTES: usize = frame::frame_len(BATCH_BODY_BYTES);

/// A segment, shared by the writer and the readers.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) name: String,
    /// Increased after each write, once the bytes are in the file.
    len: AtomicU64,
}

impl Segment {
    pub(crate) fn new(base: u64, len: u64, name: String) -> Self {
        Self { base, name, len: AtomicU64::new(len) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.len()
    }

    pub(crate) fn set_end(&self, end: u64) {
        self.len.store(end - self.base, Ordering::Release);
    }

    /// Creates a new segment, with name and header durable before anything is written after it.
    pub(crate) fn create<D: Disk>(disk: &D, header: &SegmentHeader) -> Result<(Self, D::File), LogError> {
        let name = file_name(&header.prefix, header.base);
        let bytes = header.encode();
        let file = disk.create(&name).map_err(LogError::io("creating", &name))?;
        file.write_at(0, &bytes).map_err(LogError::io("writing", &name))?;
        file.sync_data().map_err(LogError::io("syncing", &name))?;
        disk.sync_dir().map_err(LogError::io("syncing the directory of", &name))?;
        Ok((Self::new(header.base, bytes.len() as u64, name), file))
    }
}

pub(crate) fn file_name(prefix: &str, base: u64) -> String {
    format!("{prefix}-{base:016x}.seg")
}

/// The base position in a segment's name; `None` for other files.
pub(crate) fn base_of(prefix: &str, name: &str) -> Option<u64> {
    let hex = name.strip_prefix(prefix)?.strip_prefix('-')?.strip_suffix(".seg")?;
    let base = u64::from_str_radix(hex, 16).ok()?;
    (file_name(prefix, base) == name).then_some(base)
}

/// The first frame of every segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) version: u32,
    pub(crate) base: u64,
    pub(crate) log_start: u64,
    pub(crate) store_id: [u8; 16],
    pub(crate) prefix: String,
}

impl SegmentHeader {
    /// Enough for the header with any prefix that fits into a file name.
    pub(crate) const BYTES_MAX: usize = 512;

    /// Sealed without store and position, so that a foreign or renamed file can be told from a damaged one.
    pub(crate) fn encode(&self) -> Bytes {
        let mut buf = BytesMut::new();
        Seal::of_any_store().push(&mut buf, 0, (KIND_LOG, FLAG_SEGMENT, self.base), |body| {
            body.put_u32_le(self.version);
            body.put_u64_le(self.base);
            body.put_u64_le(self.log_start);
            body.put_slice(&self.store_id);
            body.put_slice(self.prefix.as_bytes());
        });
        buf.freeze()
    }

    /// Decodes a header; `None` if it is damaged or incomplete.
    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let frame = Seal::of_any_store().frame(bytes, 0)?.ok()?;
        let mut body = frame.body;
        if (frame.kind, frame.flags) != (KIND_LOG, FLAG_SEGMENT) || body.len() < 4 {
            return None;
        }
        let version = body.get_u32_le();
        if version > FORMAT_VERSION {
            // Of an unknown format only the version can be read.
            return Some(Self { version, base: 0, log_start: 0, store_id: [0; 16], prefix: String::new() });
        }
        if body.len() < SEGMENT_FIXED_BYTES - 4 {
            return None;
        }
        let (base, log_start) = (body.get_u64_le(), body.get_u64_le());
        let mut store_id = [0; 16];
        body.copy_to_slice(&mut store_id);
        Some(Self { version, base, log_start, store_id, prefix: String::from_utf8(body.into()).ok()? })
    }

    /// Fails if the file is intact but does not belong to this log.
    pub(crate) fn check(&self, name: &str, expected: &Self) -> Result<(), LogError> {
        if self.version > FORMAT_VERSION {
            return Err(LogError::NewerFormat {
                name: name.into(),
                found: self.version,
                ours: FORMAT_VERSION,
            });
        }
        if self.store_id != expected.store_id {
            return Err(LogError::OtherStore { name: name.into() });
        }
        if (self.base, &self.prefix) != (expected.base, &expected.prefix) {
            let says = file_name(&self.prefix, self.base);
            return Err(LogError::Renamed { name: name.into(), says });
        }
        Ok(())
    }

    /// The size of the header in the file.
    pub(crate) fn len_of(prefix: &str) -> u64 {
        frame::frame_len(SEGMENT_FIXED_BYTES + prefix.len()) as u64
    }
}

/// The first frame of every batch: what was known to be on disk when the batch was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub position: u64,
    /// Everything below was synced: damage below is rot, damage at or above may be a torn write.
    pub durable_up_to: u64,
    /// Segments below were dropped and may be gone.
    pub log_start: u64,
    /// The bytes of the frames after this header when it was written; recovery may have truncated some.
    pub bytes: u64,
    pub frames: u64,
    /// The caller's own number, for example the time.
    pub note: u64,
}

impl BatchHeader {
    /// The end of the batch when it was written.
    pub fn end(&self) -> u64 {
        self.position + BATCH_HEADER_BYTES as u64 + self.bytes
    }

    pub(crate) fn push(&self, seal: Seal, buf: &mut BytesMut) {
        seal.push(buf, self.position, (KIND_LOG, FLAG_BATCH, self.frames), |body| {
            for part in [self.durable_up_to, self.log_start, self.bytes, self.frames, self.note] {
                body.put_u64_le(part);
            }
        });
    }

    pub(crate) fn decode(frame: &Frame) -> Option<Self> {
        if (frame.kind, frame.flags) != (KIND_LOG, FLAG_BATCH) || frame.body.len() < BATCH_BODY_BYTES {
            return None;
        }
        let mut body = &frame.body[..];
        Some(Self {
            position: frame.position,
            durable_up_to: body.get_u64_le(),
            log_start: body.get_u64_le(),
            bytes: body.get_u64_le(),
            frames: body.get_u64_le(),
            note: body.get_u64_le(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_base_and_foreign_names_are_left_alone() {
        assert_eq!(file_name("j", 4096), "j-0000000000001000.seg");
        assert_eq!(base_of("j", "j-0000000000001000.seg"), Some(4096));
        for foreign in
            ["j-1000.seg", "k-0000000000001000.seg", "j-000000000000100G.seg", "j-0000000000001000.seg~"]
        {
            assert_eq!(base_of("j", foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_segment_header_reads_back() {
        let header = SegmentHeader {
            version: FORMAT_VERSION,
            base: 4096,
            log_start: 64,
            store_id: [9; 16],
            prefix: "letters".into(),
        };
        let bytes = header.encode();
        assert_eq!(bytes.len() as u64, SegmentHeader::len_of("letters"));
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
    }
}
