//! Reads the log while it is written, from any thread.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use super::error::ReadError;
use super::frame::{Frame, HEADER_BYTES, KIND_LOG, Rot, RotHeader, Seal};
use super::scan::{Piece, Walk};
use super::segment::{BatchHeader, FLAG_SEGMENT, Segment, SegmentHeader};
use super::segments::Segments;
use super::wipe::{Torn, wipe};
use crate::engine::embedded::disk::real::{Disk, DiskFile};

/// Reads no further apart than this are combined.
const COALESCE_GAP_BYTES: u64 = 64 * 1024;
/// The maximum size of a combined read, unless a single frame is larger.
const COALESCE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How much is read if the length of a frame is not known.
const GUESS_BYTES: u64 = 4096;

/// An item of a scan, in log order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scanned {
    /// A batch header: the frames up to the next one were written together.
    Batch(BatchHeader),
    /// A frame. Its body shares the buffer of the read (1 MiB): copy what is kept for long.
    Frame(Frame),
    /// Damage. With kind 0 it was one of the log's own frames, and no caller's frame is lost.
    Rot(Rot),
}

/// A cheap handle for reading; clone it for every thread.
#[derive(Debug)]
pub struct Reader<D: Disk> {
    segments: Segments<D>,
    seal: Seal,
    /// The size of each segment's header.
    header_len: u64,
}

impl<D: Disk> Clone for Reader<D> {
    fn clone(&self) -> Self {
        Self { segments: self.segments.clone(), ..*self }
    }
}

impl<D: Disk> Reader<D> {
    pub(crate) fn new(segments: Segments<D>, seal: Seal, header_len: u64) -> Self {
        Self { segments, seal, header_len }
    }

    /// The start of the oldest existing segment.
    pub fn start(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.base)
    }

    /// The current end of the written data, durable or not.
    pub fn end(&self) -> u64 {
        self.segments.at(u64::MAX).map_or(0, |segment| segment.end())
    }

    /// Base and length of the current segments, oldest first.
    pub fn segments(&self) -> Vec<(u64, u64)> {
        self.segments.snapshot().iter().map(|segment| (segment.base, segment.len())).collect()
    }

    /// Reads the frame at `position` if its length is not known.
    pub fn read_frame(&self, position: u64) -> Result<Frame, ReadError> {
        self.read(position, GUESS_BYTES)
    }

    /// Reads the frame at `position` that takes `len` bytes in the log, with one read if `len` is right.
    pub fn read(&self, position: u64, len: u64) -> Result<Frame, ReadError> {
        let segment = self.segments.at(position).ok_or(ReadError::Missing { position })?;
        let bytes = self.load(&segment, position, len.max(HEADER_BYTES as u64))?;
        self.frame_in(&segment, &bytes, position)
    }

    /// Reads many frames given as (position, length in the log), with combined reads for neighbours.
    ///
    /// Sorts `wanted` by position; the results are in that order. Bodies share the buffer of their read.
    pub fn read_many(&self, wanted: &mut [(u64, u64)]) -> Vec<Result<Frame, ReadError>> {
        wanted.sort_unstable();
        let mut frames = Vec::with_capacity(wanted.len());
        let mut rest = &wanted[..];
        while let Some(&(first, first_len)) = rest.first() {
            let Some(segment) = self.segments.at(first) else {
                frames.push(Err(ReadError::Missing { position: first }));
                rest = &rest[1..];
                continue;
            };
            let segment_end = segment.end();
            let mut end = first.saturating_add(first_len.max(HEADER_BYTES as u64));
            let mut run = 1;
            for &(position, len) in &rest[1..] {
                let next_end = position.saturating_add(len.max(HEADER_BYTES as u64)).max(end);
                let near = position <= end.saturating_add(COALESCE_GAP_BYTES) && position < segment_end;
                if !near || next_end - first > COALESCE_BYTES_MAX {
                    break;
                }
                end = next_end;
                run += 1;
            }
            match self.load(&segment, first, end - first) {
                Ok(bytes) => frames.extend(rest[..run].iter().map(|&(position, _)| {
                    let from = ((position - first) as usize).min(bytes.len());
                    self.frame_in(&segment, &bytes.slice(from..), position)
                })),
                // A bad sector must affect only its own frame.
                Err(_) => frames.extend(rest[..run].iter().map(|&(position, len)| self.read(position, len))),
            }
            rest = &rest[run..];
        }
        frames
    }

    /// Walks the frames that begin in `[from, to)` until `each` breaks, and returns the position of the next one.
    ///
    /// `from` must be the position of a frame, of a batch, or the start of the log or of a segment. Damaged or missing
    /// ranges are passed on as [`Scanned::Rot`], never skipped silently.
    pub fn scan(
        &self,
        from: u64,
        to: u64,
        mut each: impl FnMut(Scanned) -> ControlFlow<()>,
    ) -> Result<u64, ReadError> {
        let mut at = from;
        let to = to.min(self.end());
        while at < to {
            let segment = self.segments.at(at).ok_or(ReadError::Missing { position: at })?;
            let end = segment.end();
            if at >= end {
                return Err(ReadError::Missing { position: at });
            }
            if at == segment.base {
                at += self.header_len.min(end - at);
                let bytes = self.load(&segment, segment.base, SegmentHeader::BYTES_MAX as u64)?;
                if SegmentHeader::decode(&bytes).is_none() {
                    let header = Some(RotHeader { kind: KIND_LOG, flags: FLAG_SEGMENT, tag: segment.base });
                    let rot = Rot { position: segment.base, len: at - segment.base, header };
                    if each(Scanned::Rot(rot)).is_break() {
                        return Ok(at);
                    }
                }
            }
            let file = self.file(&segment, at)?;
            let mut walk = Walk::new(&*file, self.seal, segment.base, at, end);
            while walk.position() < to {
                let position = walk.position();
                let Some(piece) = walk.next().map_err(|source| ReadError::Io { position, source })? else {
                    break;
                };
                let scanned = match piece {
                    Piece::Bad(rot) => Scanned::Rot(rot),
                    Piece::Frame(frame) if frame.kind == KIND_LOG => match BatchHeader::decode(&frame) {
                        Some(header) => Scanned::Batch(header),
                        None => continue,
                    },
                    Piece::Frame(frame) => Scanned::Frame(frame),
                };
                if each(scanned).is_break() {
                    return Ok(walk.position());
                }
            }
            at = walk.position();
        }
        Ok(at)
    }

    /// Overwrites the content of messages with these numbers, in the segment that begins at `base` and below `to`.
    /// Durable on return. Does nothing if the segment is gone.
    pub fn wipe(&self, base: u64, to: u64, letters: &HashSet<u64>) -> Result<(), ReadError> {
        let Some(segment) = self.segments.at(base).filter(|segment| segment.base == base) else {
            return Ok(());
        };
        let (from, to) = (base + self.header_len.min(segment.len()), to.min(segment.end()));
        let file = self.file(&segment, base)?;
        let wiped = wipe(&*file, self.seal, base, (from, to), letters, Torn::StaysDamaged);
        let synced = wiped.and_then(|frames| if frames > 0 { file.sync_data() } else { Ok(()) });
        synced.map_err(|source| ReadError::Io { position: base, source })
    }

    fn frame_in(&self, segment: &Segment, bytes: &Bytes, position: u64) -> Result<Frame, ReadError> {
        let Some(header) = self.seal.header(bytes, position) else {
            if position + HEADER_BYTES as u64 > segment.end() {
                return Err(ReadError::Missing { position });
            }
            return Err(ReadError::Rot { position, len: 0, header: None });
        };
        let read = if header.total() > bytes.len() {
            self.seal.frame(&self.load(segment, position, header.total() as u64)?, position)
        } else {
            self.seal.frame(bytes, position)
        };
        read.ok_or(ReadError::Rot { position, len: 0, header: None })?.map_err(ReadError::from)
    }

    fn load(&self, segment: &Segment, position: u64, len: u64) -> Result<Bytes, ReadError> {
        let end = segment.end().min(position.saturating_add(len));
        if position >= end {
            return Err(ReadError::Missing { position });
        }
        let read = self.file(segment, position)?.read_vec(position - segment.base, (end - position) as usize);
        Ok(read.map_err(|source| ReadError::Io { position, source })?.into())
    }

    fn file(&self, segment: &Segment, position: u64) -> Result<Arc<D::File>, ReadError> {
        self.segments.file(segment).map_err(|source| match source.kind() {
            // Removed after it was looked up.
            io::ErrorKind::NotFound => ReadError::Missing { position },
            _ => ReadError::Io { position, source },
        })
    }
}
