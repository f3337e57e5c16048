//! A batch: frames that are written together. The position of each is known when it is pushed.

use bytes::{Bytes, BytesMut};

use super::frame::{self, Frame, KIND_LOG, Seal};
use super::segment::{BATCH_HEADER_BYTES, BatchHeader};

/// Frames that will be written together.
#[derive(Debug)]
pub struct Batch {
    start: u64,
    frames: u64,
    note: u64,
    seal: Seal,
    buf: BytesMut,
}

impl Batch {
    /// Starts a batch with room for the header, in a buffer that an earlier batch may have left.
    pub(crate) fn new(start: u64, note: u64, seal: Seal, mut buf: BytesMut) -> Self {
        buf.clear();
        buf.resize(BATCH_HEADER_BYTES, 0);
        Self { start, frames: 0, note, seal, buf }
    }

    /// Appends a frame and returns its position. `body` may only append to the buffer.
    pub fn push(
        &mut self,
        kind: u8,
        flags: u8,
        tag: u64,
        body_len_hint: usize,
        body: impl FnOnce(&mut BytesMut),
    ) -> u64 {
        assert!(kind != KIND_LOG, "kind 0 belongs to the log itself");
        let position = self.end();
        self.buf.reserve(frame::frame_len(body_len_hint));
        self.seal.push(&mut self.buf, position, (kind, flags, tag), body);
        self.frames += 1;
        position
    }

    /// Appends a frame whose body is the concatenation of these slices.
    pub fn push_slices(&mut self, kind: u8, flags: u8, tag: u64, body: &[&[u8]]) -> u64 {
        let len = body.iter().map(|part| part.len()).sum();
        self.push(kind, flags, tag, len, |buf| {
            for part in body {
                buf.extend_from_slice(part);
            }
        })
    }

    /// Sets the caller's own number in the batch header, for example the time.
    pub fn set_note(&mut self, note: u64) {
        self.note = note;
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    /// The position of the next frame.
    pub fn end(&self) -> u64 {
        self.start + self.buf.len() as u64
    }

    pub fn frames(&self) -> u64 {
        self.frames
    }

    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Completes the header and returns it; the buffer then has the bytes to be written to the file.
    pub(crate) fn seal(&mut self, durable_up_to: u64, log_start: u64) -> BatchHeader {
        let header = BatchHeader {
            position: self.start,
            durable_up_to,
            log_start,
            bytes: (self.buf.len() - BATCH_HEADER_BYTES) as u64,
            frames: self.frames,
            note: self.note,
        };
        let mut sealed = BytesMut::with_capacity(BATCH_HEADER_BYTES);
        header.push(self.seal, &mut sealed);
        self.buf[..BATCH_HEADER_BYTES].copy_from_slice(&sealed);
        header
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Splits into the written batch and the rest of the buffer for the next one.
    pub(crate) fn into_written(mut self) -> (Written, BytesMut) {
        let (start, end) = (self.start, self.end());
        let bytes = self.buf.split().freeze();
        (Written { start, end, bytes, seal: self.seal }, self.buf)
    }
}

/// A batch that is written to the file but not yet synced.
#[derive(Debug, Clone)]
pub struct Written {
    pub start: u64,
    pub end: u64,
    /// The bytes of the batch; a frame at `position` begins at `position - start`. Empty if it must be read from the
    /// log.
    pub bytes: Bytes,
    seal: Seal,
}

impl Written {
    /// The frame at `position`, sharing the batch's memory.
    pub fn frame(&self, position: u64) -> Option<Frame> {
        let offset = usize::try_from(position.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(offset..)?;
        let header = self.seal.header(bytes, position)?;
        let body = offset + frame::HEADER_BYTES;
        let body = self.bytes.slice(body..body + header.len as usize);
        Some(Frame { position, kind: header.kind, flags: header.flags, tag: header.tag, body })
    }
}
