//! Walks the frames of a segment in big reads, and finds the next frame after damage.

use std::io;

use bytes::Bytes;

use super::frame::{self, ALIGN, Frame, HEADER_BYTES, Rot, Seal};
use crate::engine::embedded::disk::real::DiskFile;

const CHUNK_BYTES: usize = 1024 * 1024;

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum Piece {
    Frame(Frame),
    Bad(Rot),
}

/// A walk over `[at, end)` of the segment that begins at `base`.
#[derive(Debug)]
pub(crate) struct Walk<'a, F> {
    file: &'a F,
    seal: Seal,
    base: u64,
    at: u64,
    end: u64,
    chunk: Bytes,
    chunk_at: u64,
}

impl<'a, F: DiskFile> Walk<'a, F> {
    /// `at` must be the position of a frame. Bodies are slices of the chunks read, and keep them in memory.
    pub(crate) fn new(file: &'a F, seal: Seal, base: u64, at: u64, end: u64) -> Self {
        Self { file, seal, base, at, end, chunk: Bytes::new(), chunk_at: at }
    }

    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<Piece>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let at = self.at;
        self.load(at, HEADER_BYTES)?;
        let Some(header) = self.seal.header(self.loaded(at), at) else {
            let next = self.resync()?;
            return Ok(Some(self.bad(Rot { position: at, len: next - at, header: None })));
        };
        let total = header.total();
        if at + total as u64 > self.end {
            // The header is intact, but the file ends before the body does.
            return Ok(Some(self.bad(Rot { position: at, len: self.end - at, header: Some(header.rot()) })));
        }
        self.load(at, total)?;
        let bytes = self.chunk.slice((at - self.chunk_at) as usize..);
        match self.seal.frame(&bytes, at) {
            Some(Ok(frame)) => {
                self.at += total as u64;
                Ok(Some(Piece::Frame(frame)))
            }
            Some(Err(rot)) => Ok(Some(self.bad(rot))),
            None => Ok(Some(self.bad(Rot { position: at, len: total as u64, header: None }))),
        }
    }

    fn bad(&mut self, rot: Rot) -> Piece {
        self.at = rot.position + rot.len;
        Piece::Bad(rot)
    }

    /// The next position with a valid header whose frame fits, or the end.
    ///
    /// The header's checksum covers the position, so nothing inside a body can be mistaken for a frame.
    fn resync(&mut self) -> io::Result<u64> {
        let mut at = self.at;
        loop {
            at += ALIGN as u64;
            if at + HEADER_BYTES as u64 > self.end {
                return Ok(self.end);
            }
            self.load(at, HEADER_BYTES)?;
            let bytes = self.loaded(at);
            if frame::may_begin(bytes)
                && let Some(header) = self.seal.header(bytes, at)
                && at + header.total() as u64 <= self.end
            {
                return Ok(at);
            }
        }
    }

    fn loaded(&self, at: u64) -> &[u8] {
        let from = (at - self.chunk_at) as usize;
        self.chunk.get(from..).unwrap_or_default()
    }

    /// Loads `[at, at + need)` into the chunk, as far as the file has it.
    fn load(&mut self, at: u64, need: usize) -> io::Result<()> {
        let chunk_end = self.chunk_at + self.chunk.len() as u64;
        if at >= self.chunk_at && at + need as u64 <= chunk_end.max(self.chunk_at) {
            return Ok(());
        }
        let left = (self.end - at) as usize;
        let len = left.min(need.max(CHUNK_BYTES));
        self.chunk = match std::mem::take(&mut self.chunk).try_into_mut() {
            // No slice of the last chunk is in use: reuse its memory.
            Ok(mut buf) => {
                buf.resize(len, 0);
                let got = self.file.read_at(at - self.base, &mut buf)?;
                buf.truncate(got);
                buf.freeze()
            }
            Err(_) => self.file.read_vec(at - self.base, len)?.into(),
        };
        self.chunk_at = at;
        Ok(())
    }
}
