//! The append-only log: one writer, one sync per batch, and it stops for good at the first failure.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::disk::{Disk, DiskFile};
use super::frame::{self, Frame, KIND_LOG, Seal};
use super::log_error::LogError;
use super::log_open::{self, OpenReport};
use super::reader::{Reader, Segments};
use super::segment::{self, BATCH_HEADER_BYTES, BatchHeader, FORMAT_VERSION, Segment, SegmentHeader};

#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Names the log within its directory.
    pub prefix: String,
    /// A segment that has reached this size gets no further batch.
    pub segment_bytes: u64,
    pub store_id: [u8; 16],
    /// Go on although a stretch of the log is missing; it is reported.
    pub accept_missing: bool,
    /// Segments that end below are not searched for damage when the log is opened. Reading finds it all the same.
    pub verify_from: u64,
}

impl LogOptions {
    pub fn new(prefix: impl Into<String>, segment_bytes: u64, store_id: [u8; 16]) -> Self {
        Self { prefix: prefix.into(), segment_bytes, store_id, accept_missing: false, verify_from: 0 }
    }

    pub(super) fn segment_header(&self, base: u64, log_start: u64) -> SegmentHeader {
        let (store_id, prefix) = (self.store_id, self.prefix.clone());
        SegmentHeader { version: FORMAT_VERSION, base, log_start, store_id, prefix }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    pub base: u64,
    pub len: u64,
}

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

    /// Appends a frame whose body is these slices, one behind the other.
    pub fn push_slices(&mut self, kind: u8, flags: u8, tag: u64, body: &[&[u8]]) -> u64 {
        let len = body.iter().map(|part| part.len()).sum();
        self.push(kind, flags, tag, len, |buf| {
            for part in body {
                buf.extend_from_slice(part);
            }
        })
    }

    /// The caller's own number for the batch header, for example the time.
    pub fn set_note(&mut self, note: u64) {
        self.note = note;
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where the next frame would stand.
    pub fn end(&self) -> u64 {
        self.start + self.buf.len() as u64
    }

    pub fn frames(&self) -> u64 {
        self.frames
    }

    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }
}

/// A batch that is in the file, but not yet synced.
#[derive(Debug, Clone)]
pub struct Written {
    pub start: u64,
    pub end: u64,
    /// The batch as written; a frame at `position` begins at `position - start`.
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

/// The writing end of the log.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: D,
    options: LogOptions,
    seal: Seal,
    segments: Segments<D::File>,
    current: Arc<Segment<D::File>>,
    start: u64,
    durable: u64,
    /// The durable position that the newest header in the file tells.
    announced: u64,
    note: u64,
    spare: BytesMut,
    poison: Option<String>,
}

impl<D: Disk> Log<D> {
    /// Opens or creates the log, after cutting torn writes off its end. See [`log_open`] for the rules.
    pub fn open(disk: D, options: LogOptions) -> Result<(Self, OpenReport), LogError> {
        let opened = log_open::open(&disk, &options)?;
        let current = opened.segments.last().expect("an opened log has a segment").clone();
        let log = Self {
            seal: Seal::of_store(options.store_id),
            segments: Segments::new(opened.segments),
            current,
            start: opened.report.log_start,
            durable: opened.report.durable,
            announced: opened.announced,
            note: opened.note,
            spare: BytesMut::new(),
            poison: None,
            disk,
            options,
        };
        Ok((log, opened.report))
    }

    /// Begins a batch. The segment it goes into is decided now, so that positions are known when frames are pushed.
    pub fn batch(&mut self) -> Result<Batch, LogError> {
        self.check()?;
        if self.current.len() >= self.options.segment_bytes {
            let rolled = self.roll();
            self.guard(rolled)?;
        }
        Ok(self.begin())
    }

    fn begin(&mut self) -> Batch {
        let mut buf = std::mem::take(&mut self.spare);
        buf.clear();
        buf.resize(BATCH_HEADER_BYTES, 0);
        Batch { start: self.end(), frames: 0, note: self.note, seal: self.seal, buf }
    }

    /// Writes the batch with one call to the disk. It is durable after the next [`Log::sync`].
    ///
    /// Batches are written in the order in which they were begun, one at a time.
    pub fn write(&mut self, mut batch: Batch) -> Result<Written, LogError> {
        self.check()?;
        assert_eq!(batch.start, self.end(), "another batch was written after this one was begun");
        let header = BatchHeader {
            position: batch.start,
            durable_up_to: self.durable,
            log_start: self.start,
            bytes: (batch.buf.len() - BATCH_HEADER_BYTES) as u64,
            frames: batch.frames,
            note: batch.note,
        };
        let mut patch = BytesMut::with_capacity(BATCH_HEADER_BYTES);
        header.push(self.seal, &mut patch);
        batch.buf[..BATCH_HEADER_BYTES].copy_from_slice(&patch);

        let end = batch.end();
        let offset = batch.start - self.current.base;
        let written = self.current.file.write_at(offset, &batch.buf);
        self.guard(written.map_err(LogError::io("writing", self.current_name())))?;
        self.current.set_end(end);
        self.announced = header.durable_up_to;
        self.note = header.note;
        let bytes = batch.buf.split().freeze();
        self.spare = batch.buf;
        Ok(Written { start: batch.start, end, bytes, seal: self.seal })
    }

    /// Makes everything written durable and returns the position up to which that is so.
    pub fn sync(&mut self) -> Result<u64, LogError> {
        self.check()?;
        if self.durable < self.end() {
            let synced = self.current.file.sync_data();
            self.guard(synced.map_err(LogError::io("syncing", self.current_name())))?;
            self.durable = self.end();
        }
        Ok(self.durable)
    }

    /// Tells in the log itself how far it is durable, unless that stands there already. Needs no sync.
    ///
    /// Until then damage in the last batch cannot be told from a torn write. Call it when there is nothing to write.
    pub fn mark(&mut self) -> Result<(), LogError> {
        self.check()?;
        // What a mark itself makes durable carries nothing and needs no mark.
        if self.announced + (BATCH_HEADER_BYTES as u64) < self.durable {
            let batch = self.begin();
            self.write(batch)?;
        }
        Ok(())
    }

    /// Ends the log so that every frame in it is known to be durable.
    pub fn close(mut self) -> Result<(), LogError> {
        self.sync()?;
        self.mark()?;
        self.sync()?;
        Ok(())
    }

    /// Gives up the segments that end at or below `position`, oldest first, and returns how many bytes that freed.
    pub fn advance_start(&mut self, position: u64) -> Result<u64, LogError> {
        self.check()?;
        let segments = self.segments.snapshot();
        let Some(first) = segments.iter().rev().find(|segment| segment.base <= position) else {
            return Ok(0);
        };
        let start = first.base;
        if start <= self.start {
            return Ok(0);
        }
        self.start = start;
        let batch = self.begin();
        self.write(batch)?;
        // Without this a power cut could leave a log that lacks its first segment and does not know why.
        self.sync()?;
        let mut freed = 0;
        for segment in segments.iter().filter(|segment| segment.base < start) {
            let name = segment::file_name(&self.options.prefix, segment.base);
            self.segments.remove(segment.base);
            let removed = self.disk.remove(&name);
            self.guard(removed.map_err(LogError::io("removing", name)))?;
            freed += segment.len();
        }
        let synced = self.disk.sync_dir();
        self.guard(synced.map_err(LogError::io("syncing the directory of", self.current_name())))?;
        Ok(freed)
    }

    pub fn reader(&self) -> Reader<D> {
        Reader::new(self.segments.clone(), self.seal, SegmentHeader::len_of(&self.options.prefix))
    }

    pub fn segments(&self) -> Vec<SegmentInfo> {
        let info = |segment: &Arc<Segment<_>>| SegmentInfo { base: segment.base, len: segment.len() };
        self.segments.snapshot().iter().map(info).collect()
    }

    /// The first position that has not been given up.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where the next batch goes.
    pub fn end(&self) -> u64 {
        self.current.end()
    }

    /// Everything below survives a power cut.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The next segment exists only after this one is completely on the disk: that is what proves it at recovery.
    fn roll(&mut self) -> Result<(), LogError> {
        self.sync()?;
        let header = self.options.segment_header(self.end(), self.start);
        let next = Arc::new(Segment::create(&self.disk, &header)?);
        self.segments.push(next.clone());
        self.current = next;
        self.durable = self.end();
        self.announced = self.durable;
        Ok(())
    }

    fn current_name(&self) -> String {
        segment::file_name(&self.options.prefix, self.current.base)
    }

    fn check(&self) -> Result<(), LogError> {
        match &self.poison {
            Some(cause) => Err(LogError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn guard<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result {
            self.poison.get_or_insert_with(|| error.to_string());
        }
        result
    }
}
