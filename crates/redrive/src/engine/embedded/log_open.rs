//! Opening a log: what is torn is cut off, what is rotten or missing is told, nothing is skipped silently.
//!
//! - *Durable* is the highest position that anything intact proves to have been synced: a batch header says how far,
//!   and a segment exists only after everything before it was synced.
//! - A bad frame at or above it may be a write that a crash tore. Nobody was told that it is safe, and pages land in any
//!   order: the log is cut there, together with what follows.
//! - A bad frame below it is rot. It is reported and stays; everything around it is kept.
//! - Whole frames at or above it are kept, and made durable before the log is used.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::disk::{Disk, DiskFile};
use super::frame::{KIND_LOG, Rot, RotHeader, Seal};
use super::log_error::LogError;
use super::scan::{Piece, Walk};
use super::segment::{self, BatchHeader, FLAG_SEGMENT, FORMAT_VERSION, Segment, SegmentHeader};

const REWRITE_BYTES: u64 = 1024 * 1024;

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

pub(super) struct Opened<F> {
    pub(super) segments: Vec<Arc<Segment<F>>>,
    pub(super) report: OpenReport,
    pub(super) announced: u64,
    pub(super) note: u64,
}

pub(super) fn open<D: Disk>(disk: &D, options: &LogOptions) -> Result<Opened<D::File>, LogError> {
    let mut files = find(disk, options)?;
    if files.is_empty() {
        return fresh(disk, options);
    }
    let mut report = OpenReport::default();
    clip_overlaps(&mut files, &mut report);

    let last = files.last().expect("not empty");
    let tail = examine(last, options)?;
    let durable = tail.seen.durable.max(last.base);
    let torn = tail.bad.iter().position(|(rot, _)| rot.position + rot.len > durable);
    let (cut, kept) = match torn {
        Some(i) => (tail.bad[i].0.position.max(durable), tail.bad[i].1),
        None => (last.end(), tail.seen),
    };
    report.cut_bytes += last.end() - cut;

    report.log_start = log_start(&files, kept, options)?;
    fill_gaps(&mut files, options, &mut report)?;
    for file in files.iter().filter(|file| file.base >= report.log_start) {
        if file.base == last_base(&files) {
            report.rot.extend(tail.bad.iter().filter_map(|(rot, _)| below(*rot, durable)));
        } else if file.end() > options.verify_from {
            report.rot.extend(examine(file, options)?.bad.into_iter().map(|(rot, _)| rot));
        }
    }
    let last = files.last_mut().expect("not empty");
    settle_tail(last, options, cut, durable, report.log_start)?;
    disk.sync_dir().map_err(LogError::io("syncing the directory of", &last.name))?;
    remove_leftovers(disk, &mut files, &mut report)?;

    let segments: Vec<_> =
        files.into_iter().map(|file| Arc::new(Segment::new(file.base, file.len, file.file))).collect();
    report.end = segments.last().expect("not empty").end();
    report.durable = report.end;
    report.bytes = segments.iter().map(|segment| segment.len()).sum();
    Ok(Opened { segments, report, announced: kept.durable, note: kept.note })
}

fn fresh<D: Disk>(disk: &D, options: &LogOptions) -> Result<Opened<D::File>, LogError> {
    let segment = Segment::create(disk, &options.segment_header(0, 0))?;
    let end = segment.end();
    let report = OpenReport { end, durable: end, bytes: end, ..OpenReport::default() };
    Ok(Opened { segments: vec![Arc::new(segment)], report, announced: end, note: 0 })
}

struct Found<F> {
    base: u64,
    len: u64,
    name: String,
    file: F,
    header: Option<SegmentHeader>,
}

impl<F> Found<F> {
    fn end(&self) -> u64 {
        self.base + self.len
    }
}

fn last_base<F>(files: &[Found<F>]) -> u64 {
    files.last().map_or(0, |file| file.base)
}

/// The segment files in order. Refuses to touch anything if one of them is not ours.
fn find<D: Disk>(disk: &D, options: &LogOptions) -> Result<Vec<Found<D::File>>, LogError> {
    let names = disk.list().map_err(LogError::io("listing", &options.prefix))?;
    let mut files = Vec::new();
    for name in names {
        let Some(base) = segment::base_of(&options.prefix, &name) else { continue };
        let file = disk.open(&name).map_err(LogError::io("opening", &name))?;
        let len = file.len().map_err(LogError::io("reading", &name))?;
        let mut bytes = BytesMut::zeroed(SegmentHeader::BYTES_MAX.min(len as usize));
        let got = file.read_at(0, &mut bytes).map_err(LogError::io("reading", &name))?;
        bytes.truncate(got);
        let header = SegmentHeader::decode(&Bytes::from(bytes));
        if let Some(header) = &header {
            header.check(&name, &options.segment_header(base, 0))?;
        }
        files.push(Found { base, len, name, file, header });
    }
    files.sort_unstable_by_key(|file| file.base);
    Ok(files)
}

/// Bytes behind the base of the next segment have no position; they can only have been put there by somebody else.
fn clip_overlaps<F>(files: &mut [Found<F>], report: &mut OpenReport) {
    for i in 1..files.len() {
        let surplus = files[i - 1].end().saturating_sub(files[i].base);
        files[i - 1].len -= surplus;
        report.cut_bytes += surplus;
    }
}

/// What the intact headers up to some point say.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    durable: u64,
    log_start: Option<u64>,
    note: u64,
}

#[derive(Default)]
struct Examined {
    /// Each with what was seen before it.
    bad: Vec<(Rot, Seen)>,
    seen: Seen,
}

fn examine<F: DiskFile>(file: &Found<F>, options: &LogOptions) -> Result<Examined, LogError> {
    let mut found = Examined::default();
    let header_len = SegmentHeader::len_of(&options.prefix).min(file.len);
    if let Some(header) = &file.header {
        found.seen.log_start = Some(header.log_start);
    } else {
        // Known by its place, whatever is left of it.
        let header = Some(RotHeader { kind: KIND_LOG, flags: FLAG_SEGMENT, tag: file.base });
        found.bad.push((Rot { position: file.base, len: header_len, header }, found.seen));
    }
    let seal = Seal::of_store(options.store_id);
    let mut walk = Walk::new(&file.file, seal, file.base, file.base + header_len, file.end());
    while let Some(piece) = walk.next().map_err(LogError::io("reading", &file.name))? {
        match piece {
            Piece::Bad(rot) => found.bad.push((rot, found.seen)),
            Piece::Frame(frame) if frame.kind == KIND_LOG => {
                if let Some(header) = BatchHeader::decode(&frame) {
                    let seen = &mut found.seen;
                    seen.durable = seen.durable.max(header.durable_up_to);
                    seen.log_start = seen.log_start.max(Some(header.log_start));
                    seen.note = header.note;
                }
            }
            Piece::Frame(_) => {}
        }
    }
    Ok(found)
}

/// The part of a damaged stretch that had been durable.
fn below(rot: Rot, durable: u64) -> Option<Rot> {
    let len = rot.len.min(durable.saturating_sub(rot.position));
    (len > 0).then_some(Rot { len, ..rot })
}

/// The newest start of the log that is told by anything that stays.
fn log_start<F: DiskFile>(files: &[Found<F>], kept: Seen, options: &LogOptions) -> Result<u64, LogError> {
    if let Some(start) = kept.log_start {
        return Ok(start);
    }
    // The last segment was torn at birth, or its headers are rotten: the one before it knows.
    for file in files.iter().rev().skip(1) {
        if let Some(start) = examine(file, options)?.seen.log_start {
            return Ok(start);
        }
    }
    Ok(0)
}

/// Accepts what is missing, if that was asked for: zeros take its place and read as damage from then on.
fn fill_gaps<F: DiskFile>(
    files: &mut [Found<F>],
    options: &LogOptions,
    report: &mut OpenReport,
) -> Result<(), LogError> {
    let mut expected = report.log_start;
    let mut before: Option<usize> = None;
    for i in 0..files.len() {
        if files[i].base < report.log_start {
            continue;
        }
        let base = files[i].base;
        if base > expected {
            if !options.accept_missing {
                return Err(LogError::MissingSegment { from: expected, to: base });
            }
            report.missing.push(expected..base);
            if let Some(before) = before {
                let file = &mut files[before];
                file.len = base - file.base;
                file.file.set_len(file.len).map_err(LogError::io("extending", &file.name))?;
                file.file.sync_data().map_err(LogError::io("syncing", &file.name))?;
            } else {
                report.log_start = base;
            }
        }
        expected = files[i].end();
        before = Some(i);
    }
    Ok(())
}

/// Cuts the last segment and makes what stays durable.
fn settle_tail<F: DiskFile>(
    last: &mut Found<F>,
    options: &LogOptions,
    cut: u64,
    durable: u64,
    log_start: u64,
) -> Result<(), LogError> {
    let writing = || LogError::io("writing", &last.name);
    if cut < last.end() {
        last.file.set_len(cut - last.base).map_err(LogError::io("cutting", &last.name))?;
    }
    last.len = cut - last.base;
    if cut == last.base {
        let header = options.segment_header(last.base, log_start).encode();
        last.file.write_at(0, &header).map_err(writing())?;
        last.len = header.len() as u64;
    }
    // Written again, not only synced: after a failed sync the kernel may hold these pages as clean although the disk
    // never got them, and a sync alone would do nothing.
    let (mut from, end) = (durable - last.base, last.len);
    let mut buf = Vec::new();
    while from < end {
        buf.resize(REWRITE_BYTES.min(end - from) as usize, 0);
        let got = last.file.read_at(from, &mut buf).map_err(LogError::io("reading", &last.name))?;
        last.file.write_at(from, &buf[..got]).map_err(writing())?;
        from += got.max(1) as u64;
    }
    last.file.sync_data().map_err(LogError::io("syncing", &last.name))
}

fn remove_leftovers<D: Disk>(
    disk: &D,
    files: &mut Vec<Found<D::File>>,
    report: &mut OpenReport,
) -> Result<(), LogError> {
    report.leftovers = files.iter().take_while(|file| file.base < report.log_start).count();
    for file in files.drain(..report.leftovers) {
        disk.remove(&file.name).map_err(LogError::io("removing", &file.name))?;
    }
    if report.leftovers > 0 {
        disk.sync_dir().map_err(LogError::io("syncing the directory after removing from", "the log"))?;
    }
    Ok(())
}
