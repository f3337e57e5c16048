//! Opening a log: torn data is truncated, damaged or missing data is reported, nothing is skipped silently.
//!
//! `tail` defines what is torn and what is rot. Complete frames beyond the durable part are kept, and made durable
//! before the log is used.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::error::LogError;
use super::frame::{KIND_LOG, Rot, RotHeader, Seal};
use super::options::{LogOptions, OpenReport};
use super::scan::{Piece, Walk};
use super::segment::{self, BatchHeader, FLAG_SEGMENT, Segment, SegmentHeader};
use super::tail;
use super::watermark::Extent;
use crate::engine::embedded::disk::real::{Disk, DiskFile};

const REWRITE_BYTES: u64 = 1024 * 1024;

pub(crate) struct Opened<F> {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The file of the last segment.
    pub(crate) file: F,
    pub(crate) report: OpenReport,
    pub(crate) announced: u64,
    pub(crate) note: u64,
}

pub(crate) fn open<D: Disk>(disk: &D, options: &LogOptions) -> Result<Opened<D::File>, LogError> {
    let mut files = find(disk, options)?;
    if files.is_empty() {
        return none_left(disk, options);
    }
    let mut report = OpenReport::default();
    clip_overlaps(&mut files, &mut report);

    let last = files.last().expect("not empty");
    let last_base = last.base;
    let tail = examine(disk, last, options)?;
    let durable = tail::durable(tail.seen.durable, last.base, last.end(), options.known.end);
    let (cut, kept) = match tail::torn(tail.bad.iter().map(|(rot, _)| rot), durable) {
        Some((first, cut)) => (cut, tail.bad[first].1),
        None => (last.end(), tail.seen),
    };
    report.cut_bytes += last.end() - cut;

    report.log_start = log_start(disk, &files, kept, options)?;
    fill_gaps(disk, &mut files, options, &mut report)?;
    let last = files.last_mut().expect("not empty");
    let cut = cut.max(fill_end(disk, last, cut, options, &mut report)?);
    for file in files.iter().filter(|file| file.base >= report.log_start) {
        if file.base == last_base {
            report.rot.extend(tail.bad.iter().filter_map(|(rot, _)| tail::rot_of(*rot, durable)));
        } else if file.end() > options.verify_from {
            report.rot.extend(examine(disk, file, options)?.bad.into_iter().map(|(rot, _)| rot));
        }
    }
    let last = files.last_mut().expect("not empty");
    let file = last.open(disk)?;
    settle_tail(&file, last, options, cut, durable, report.log_start)?;
    disk.sync_dir().map_err(LogError::io("syncing the directory of", &last.name))?;
    remove_leftovers(disk, &mut files, &mut report)?;

    let segments: Vec<_> =
        files.into_iter().map(|file| Arc::new(Segment::new(file.base, file.len, file.name))).collect();
    report.end = segments.last().expect("not empty").end();
    report.durable = report.end;
    report.bytes = segments.iter().map(|segment| segment.len()).sum();
    // A segment's header needs no mark, because its content follows from the file name.
    let first_batch = last_base + SegmentHeader::len_of(&options.prefix);
    Ok(Opened { segments, file, report, announced: kept.durable.max(first_batch), note: kept.note })
}

/// Creates a new log, or a new first segment for a log that has none left.
fn none_left<D: Disk>(disk: &D, options: &LogOptions) -> Result<Opened<D::File>, LogError> {
    let mut report = OpenReport::default();
    if !options.is_known_to_be_empty() {
        let Extent { start, end } = options.known;
        if !options.accept_missing {
            return Err(LogError::MissingSegment { name: options.file_name(start), from: start, to: end });
        }
        report.missing.push(start..end);
        report.log_start = end;
    }
    // Something may still point at positions of the lost data, so they are not used again.
    let (segment, file) = Segment::create(disk, &options.segment_header(report.log_start, report.log_start))?;
    let (end, bytes) = (segment.end(), segment.len());
    let report = OpenReport { end, durable: end, bytes, ..report };
    Ok(Opened { segments: vec![Arc::new(segment)], file, report, announced: end, note: 0 })
}

/// The newest format of any segment; `None` if no segment has a readable header.
pub(crate) fn newest_version<D: Disk>(disk: &D, options: &LogOptions) -> Result<Option<u32>, LogError> {
    let files = find(disk, options)?;
    Ok(files.iter().filter_map(|file| file.header.as_ref()).map(|header| header.version).max())
}

struct FoundTail {
    base: u64,
    len: u64,
    name: String,
    header: Option<SegmentHeader>,
}

impl FoundTail {
    fn open<D: Disk>(&self, disk: &D) -> Result<D::File, LogError> {
        disk.open(&self.name).map_err(LogError::io("opening", &self.name))
    }

    fn end(&self) -> u64 {
        self.base + self.len
    }
}

/// The segment files in order. Fails if one of them does not belong to this log.
fn find<D: Disk>(disk: &D, options: &LogOptions) -> Result<Vec<FoundTail>, LogError> {
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
        files.push(FoundTail { base, len, name, header });
    }
    files.sort_unstable_by_key(|file| file.base);
    Ok(files)
}

/// Cuts off bytes beyond the base of the next segment. They have no position; only another program can have written
/// them.
fn clip_overlaps(files: &mut [FoundTail], report: &mut OpenReport) {
    for i in 1..files.len() {
        let surplus = files[i - 1].end().saturating_sub(files[i].base);
        files[i - 1].len -= surplus;
        report.cut_bytes += surplus;
    }
}

/// What the intact headers up to some point say.
#[derive(Debug, Clone, Copy, Default)]
struct SeenFrames {
    durable: u64,
    log_start: Option<u64>,
    note: u64,
}

#[derive(Default)]
struct Examined {
    /// Damaged ranges, each with what was seen before it.
    bad: Vec<(Rot, SeenFrames)>,
    seen: SeenFrames,
}

fn examine<D: Disk>(disk: &D, file: &FoundTail, options: &LogOptions) -> Result<Examined, LogError> {
    let mut found = Examined::default();
    let header_len = SegmentHeader::len_of(&options.prefix).min(file.len);
    if let Some(header) = &file.header {
        found.seen.log_start = Some(header.log_start);
    } else {
        // A segment header is recognised by its place, even if it is unreadable.
        let header = Some(RotHeader { kind: KIND_LOG, flags: FLAG_SEGMENT, tag: file.base });
        found.bad.push((Rot { position: file.base, len: header_len, header }, found.seen));
    }
    let (open, seal) = (file.open(disk)?, Seal::of_store(options.store_id));
    let mut walk = Walk::new(&open, seal, file.base, file.base + header_len, file.end());
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

/// The newest start of the log that a kept header records.
fn log_start<D: Disk>(
    disk: &D,
    files: &[FoundTail],
    kept: SeenFrames,
    options: &LogOptions,
) -> Result<u64, LogError> {
    let known = options.known.start;
    if let Some(start) = kept.log_start {
        return Ok(start.max(known));
    }
    // The last segment was torn when it was created, or its headers are damaged; use the one before it.
    for file in files.iter().rev().skip(1) {
        if let Some(start) = examine(disk, file, options)?.seen.log_start {
            return Ok(start.max(known));
        }
    }
    Ok(known)
}

/// Accepts missing segments, if requested: zeros are written in their place and read as damage from then on.
fn fill_gaps<D: Disk>(
    disk: &D,
    files: &mut [FoundTail],
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
                let name =
                    before.map_or_else(|| options.file_name(expected), |i| short_or_next(&files[i], options));
                return Err(LogError::MissingSegment { name, from: expected, to: base });
            }
            report.missing.push(expected..base);
            if let Some(before) = before {
                let file = &mut files[before];
                file.len = base - file.base;
                let open = file.open(disk)?;
                open.set_len(file.len).map_err(LogError::io("extending", &file.name))?;
                open.sync_data().map_err(LogError::io("syncing", &file.name))?;
            } else {
                report.log_start = base;
            }
        }
        expected = files[i].end();
        before = Some(i);
    }
    Ok(())
}

/// The file to name if something is missing after a segment: either it was cut short, or the next one is gone.
fn short_or_next(segment: &FoundTail, options: &LogOptions) -> String {
    if segment.len < options.segment_bytes { segment.name.clone() } else { options.file_name(segment.end()) }
}

/// The required end of the log. Missing data is replaced by zeros, if the loss is accepted.
fn fill_end<D: Disk>(
    disk: &D,
    last: &mut FoundTail,
    cut: u64,
    options: &LogOptions,
    report: &mut OpenReport,
) -> Result<u64, LogError> {
    let known = options.known.end;
    if known <= cut {
        return Ok(cut);
    }
    if !options.accept_missing {
        return Err(LogError::MissingSegment { name: short_or_next(last, options), from: cut, to: known });
    }
    report.missing.push(cut..known);
    last.len = known - last.base;
    let open = last.open(disk)?;
    open.set_len(last.len).map_err(LogError::io("extending", &last.name))?;
    open.sync_data().map_err(LogError::io("syncing", &last.name))?;
    Ok(known)
}

/// Truncates the last segment and makes the rest durable.
fn settle_tail<F: DiskFile>(
    file: &F,
    last: &mut FoundTail,
    options: &LogOptions,
    cut: u64,
    durable: u64,
    log_start: u64,
) -> Result<(), LogError> {
    let writing = || LogError::io("writing", &last.name);
    if cut < last.end() {
        file.set_len(cut - last.base).map_err(LogError::io("cutting", &last.name))?;
    }
    last.len = cut - last.base;
    if cut == last.base {
        let header = options.segment_header(last.base, log_start).encode();
        file.write_at(0, &header).map_err(writing())?;
        last.len = header.len() as u64;
    }
    // Rewritten, not only synced: after a failed sync the kernel may consider these pages clean although they never
    // reached the disk, and a sync alone would do nothing.
    let (mut from, end) = (durable - last.base, last.len);
    let mut buf = Vec::new();
    while from < end {
        buf.resize(REWRITE_BYTES.min(end - from) as usize, 0);
        let got = file.read_at(from, &mut buf).map_err(LogError::io("reading", &last.name))?;
        file.write_at(from, &buf[..got]).map_err(writing())?;
        from += got.max(1) as u64;
    }
    file.sync_data().map_err(LogError::io("syncing", &last.name))
}

fn remove_leftovers<D: Disk>(
    disk: &D,
    files: &mut Vec<FoundTail>,
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
