//! The append-only log: a single writer, one sync per batch; after the first failure it stops for good.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;

use super::frame::Seal;
use super::reader::Reader;
use super::recover;
use super::segment::{BATCH_HEADER_BYTES, Segment, SegmentHeader};
use super::segments::Segments;
use super::watermark::Extent;
use crate::engine::embedded::disk::real::{Disk, DiskFile};

pub use super::batch::{Batch, Written};
pub use super::error::{LogError, ReadError};
pub use super::options::{LogOptions, OpenReport};
pub use super::segment::BatchHeader;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    pub base: u64,
    pub len: u64,
}

/// The writing end of the log.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: D,
    options: LogOptions,
    seal: Seal,
    segments: Segments<D>,
    current: Arc<Segment>,
    /// The file of `current`. The thread that writes must also sync, or another thread may get the error.
    file: D::File,
    start: u64,
    durable: u64,
    /// The durable position according to the newest header in the file.
    announced: u64,
    note: u64,
    spare: BytesMut,
    poison: Option<String>,
}

impl<D: Disk> Log<D> {
    /// Opens or creates the log, after truncating torn writes at its end. `recover.rs` has the rules.
    pub fn open(disk: D, options: LogOptions) -> Result<(Self, OpenReport), LogError> {
        let opened = recover::open(&disk, &options)?;
        let current = opened.segments.last().expect("an opened log has a segment").clone();
        let log = Self {
            seal: Seal::of_store(options.store_id),
            segments: Segments::new(disk.clone(), opened.segments),
            current,
            file: opened.file,
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

    /// Starts a batch. Its segment is chosen now, so that positions are known when frames are pushed.
    pub fn batch(&mut self) -> Result<Batch, LogError> {
        self.check()?;
        if self.current.len() >= self.options.segment_bytes {
            self.begin_segment()?;
        }
        Ok(self.begin())
    }

    fn begin(&mut self) -> Batch {
        let spare = std::mem::take(&mut self.spare);
        Batch::new(self.end(), self.note, self.seal, spare)
    }

    /// Writes the batch with one call to the disk. It is durable after the next [`Log::sync`].
    ///
    /// Batches are written one at a time, in the order in which they were started.
    pub fn write(&mut self, mut batch: Batch) -> Result<Written, LogError> {
        self.check()?;
        assert_eq!(batch.start(), self.end(), "another batch was written after this one was begun");
        let undisturbed = self.check_file();
        self.guard(undisturbed)?;
        let header = batch.seal(self.durable, self.start);
        let written = self.file.write_at(header.position - self.current.base, batch.bytes());
        self.guard(written.map_err(|error| self.failed("writing", error)))?;
        let (written, spare) = batch.into_written();
        self.spare = spare;
        self.current.set_end(written.end);
        self.announced = header.durable_up_to;
        self.note = header.note;
        Ok(written)
    }

    /// Fails if another process has written to, truncated or removed the last segment: its data may have been
    /// acknowledged by that process.
    pub fn check_file(&self) -> Result<(), LogError> {
        let standing = self.file.standing().map_err(|error| self.failed("looking at", error))?;
        let how = if !standing.has_name {
            "removed".to_owned()
        } else if standing.len != self.current.len() {
            format!("changed from {} to {} bytes", self.current.len(), standing.len)
        } else {
            return Ok(());
        };
        Err(LogError::Disturbed { name: self.current.name.clone(), how })
    }

    /// Makes everything written durable and returns the position up to which the log is durable.
    pub fn sync(&mut self) -> Result<u64, LogError> {
        self.check()?;
        if self.durable < self.end() {
            let synced = self.file.sync_data();
            self.guard(synced.map_err(|error| self.failed("syncing", error)))?;
            self.durable = self.end();
        }
        Ok(self.durable)
    }

    /// Records in the log itself how far it is durable, unless that is recorded already. Needs no sync.
    ///
    /// Without it, damage in the last batch cannot be told from a torn write. Call it when there is nothing to write.
    pub fn mark(&mut self) -> Result<(), LogError> {
        self.check()?;
        // The mark itself carries no data, so its own durability needs no mark.
        if self.announced + (BATCH_HEADER_BYTES as u64) < self.durable {
            let batch = self.begin();
            self.write(batch)?;
        }
        Ok(())
    }

    /// Starts a new segment, unless the current one is empty.
    pub fn begin_segment(&mut self) -> Result<(), LogError> {
        self.check()?;
        if self.current.len() <= SegmentHeader::len_of(&self.options.prefix) {
            return Ok(());
        }
        let rolled = self.roll();
        self.guard(rolled)
    }

    /// Closes the log so that every frame in it is known to be durable.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.sync()?;
        self.mark()?;
        self.sync()?;
        Ok(())
    }

    /// Drops the segments that end at or below `position`, oldest first, and returns the bytes freed.
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
        // Without this, a power failure could leave a log whose first segment is missing for no recorded reason.
        self.sync()?;
        let mut freed = 0;
        for segment in segments.iter().filter(|segment| segment.base < start) {
            self.segments.remove(segment.base);
            let removed = self.disk.remove(&segment.name);
            self.guard(removed.map_err(LogError::io("removing", &segment.name)))?;
            freed += segment.len();
        }
        let synced = self.disk.sync_dir();
        self.guard(synced.map_err(|error| self.failed("syncing the directory of", error)))?;
        Ok(freed)
    }

    /// Sets the number for batches whose caller gives none, and for those that the log writes itself.
    pub fn set_note(&mut self, note: u64) {
        self.note = note;
    }

    /// The number in the last batch.
    pub fn note(&self) -> u64 {
        self.note
    }

    pub fn reader(&self) -> Reader<D> {
        Reader::new(self.segments.clone(), self.seal, SegmentHeader::len_of(&self.options.prefix))
    }

    pub fn segments(&self) -> Vec<SegmentInfo> {
        let info = |segment: &Arc<Segment>| SegmentInfo { base: segment.base, len: segment.len() };
        self.segments.snapshot().iter().map(info).collect()
    }

    /// The range of positions that survives a power failure.
    pub fn extent(&self) -> Extent {
        Extent { start: self.start, end: self.durable }
    }

    /// The first position that has not been dropped.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The position of the next batch.
    pub fn end(&self) -> u64 {
        self.current.end()
    }

    /// The position at which the current segment begins.
    pub fn last_base(&self) -> u64 {
        self.current.base
    }

    /// The position up to which the log survives a power failure.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Starts the next segment once this one is completely on disk: recovery takes its existence as proof of that.
    fn roll(&mut self) -> Result<(), LogError> {
        self.sync()?;
        let header = self.options.segment_header(self.end(), self.start);
        let (next, file) = match Segment::create(&self.disk, &header) {
            Ok(made) => made,
            // Without a descriptor for the next segment, the current one is used further.
            Err(error) if error.lacks_a_file() => return Ok(()),
            Err(error) => return Err(error),
        };
        self.current = Arc::new(next);
        self.file = file;
        self.segments.push(self.current.clone());
        self.durable = self.end();
        self.announced = self.durable;
        Ok(())
    }

    fn failed(&self, what: &'static str, source: io::Error) -> LogError {
        LogError::Io { what, name: self.current.name.clone(), source }
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

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
