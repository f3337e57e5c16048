//! Walks one log of a store, for [`super::store`].

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use redrive_core::Message;

use super::letters::Letters;
use super::report::{Damage, Entry, LogInspection, SegmentInspection, failed, kind_name};
use crate::engine::embedded::disk::read_only::ReadOnly;
use crate::engine::embedded::disk::real::DiskFile;
use crate::engine::embedded::journal::error::LogError;
use crate::engine::embedded::journal::frame::{Frame, KIND_LOG, Rot, RotHeader, Seal, frame_len};
use crate::engine::embedded::journal::record::{AcceptedBody, Stored, kind};
use crate::engine::embedded::journal::scan::{Piece, Walk};
use crate::engine::embedded::journal::segment::{self, BatchHeader, SegmentHeader};
use crate::engine::embedded::journal::tail;
use crate::engine::embedded::journal::watermark::Extent;
use crate::engine::seam::EngineError;

/// What to read, and the callback for its frames.
pub(crate) struct LogWalk<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) prefix: &'static str,
    pub(crate) log: &'static str,
    pub(crate) store_id: [u8; 16],
    /// The extent that must exist.
    pub(crate) known: Extent,
    pub(crate) letters: &'a mut Letters,
    pub(crate) each: &'a mut dyn FnMut(Entry),
}

struct Bad {
    segment: usize,
    rot: Rot,
}

impl LogWalk<'_> {
    pub(crate) fn read(&mut self) -> Result<LogInspection, EngineError> {
        let mut found = LogInspection::default();
        let mut bases = self.bases()?;
        bases.sort_unstable();
        let (mut bad, mut durable, mut log_start) = (Vec::new(), 0, 0);
        for (i, base) in bases.iter().enumerate() {
            let name = segment::file_name(self.prefix, *base);
            // Bytes beyond the base of the next segment have no position.
            let clip = bases.get(i + 1).map(|next| next - base);
            match self.segment(&name, *base, clip, &mut found, &mut bad) {
                Ok((up_to, start)) => {
                    durable = durable.max(up_to).max(*base);
                    log_start = log_start.max(start);
                }
                Err(SegmentError::Vanished) => found.vanished += 1,
                Err(SegmentError::Failed(error)) => return Err(error),
            }
        }
        // The owner may have dropped segments since the watermark was read.
        let log_start = log_start.max(self.known.start);
        found.start = log_start;
        found.leftovers = found.segments.iter().filter(|segment| segment.base < log_start).count();
        found.end = found.segments.last().map_or(0, |segment| segment.base + segment.bytes);
        found.missing = missing(&found, log_start);
        let (end, known) = (found.end.max(log_start), self.known.end);
        if known > end && known > SegmentHeader::len_of(self.prefix) && found.vanished == 0 {
            found.missing.push(end..known);
        }
        let last = found.segments.len().saturating_sub(1);
        let last_base = found.segments.last().map_or(0, |segment| segment.base);
        let durable = tail::durable(durable, last_base, found.end, known);
        let in_last = bad.iter().filter(|bad| bad.segment == last).map(|bad| &bad.rot);
        if last_base >= log_start
            && let Some((_, cut)) = tail::torn(in_last, durable)
        {
            found.unfinished_bytes = found.end - cut;
        }
        for Bad { segment, rot } in bad {
            let at = &found.segments[segment];
            let rot = if segment == last { tail::rot_of(rot, durable) } else { Some(rot) };
            let Some(rot) = rot.filter(|_| at.base >= log_start) else { continue };
            found.damage.push(Damage {
                segment: at.name.clone(),
                position: rot.position,
                offset: rot.position - at.base,
                bytes: rot.len,
                was: rot.header.map(|header| (kind_name(header.kind), header.tag)),
            });
        }
        Ok(found)
    }

    fn bases(&self) -> Result<Vec<u64>, EngineError> {
        let listed = fs::read_dir(self.dir).map_err(|error| failed("listing", self.dir, &error))?;
        let mut bases = Vec::new();
        for entry in listed {
            let entry = entry.map_err(|error| failed("listing", self.dir, &error))?;
            let name = entry.file_name();
            bases.extend(name.to_str().and_then(|name| segment::base_of(self.prefix, name)));
        }
        Ok(bases)
    }

    /// Walks one segment; returns up to where it says the log is durable, and where the log starts.
    fn segment(
        &mut self,
        name: &str,
        base: u64,
        clip: Option<u64>,
        found: &mut LogInspection,
        bad: &mut Vec<Bad>,
    ) -> Result<(u64, u64), SegmentError> {
        let path = self.dir.join(name);
        let io = |what: &'static str| {
            let path = path.clone();
            move |error: io::Error| match error.kind() {
                ErrorKind::NotFound => SegmentError::Vanished,
                _ => SegmentError::Failed(failed(what, &path, &error)),
            }
        };
        let file = ReadOnly(File::open(&path).map_err(io("opening"))?);
        let len = file.len().map_err(io("reading"))?;
        let bytes = clip.map_or(len, |clip| len.min(clip));
        let head = file.read_vec(0, SegmentHeader::BYTES_MAX.min(bytes as usize)).map_err(io("reading"))?;
        let expected = SegmentHeader {
            version: segment::FORMAT_VERSION,
            base,
            log_start: 0,
            store_id: self.store_id,
            prefix: self.prefix.to_owned(),
        };
        let index = found.segments.len();
        let header_len = SegmentHeader::len_of(self.prefix).min(bytes);
        let mut log_start = 0;
        if let Some(header) = SegmentHeader::decode(&Bytes::from(head)) {
            header.check(name, &expected).map_err(|error: LogError| SegmentError::Failed(error.into()))?;
            log_start = header.log_start;
        } else {
            bad.push(Bad { segment: index, rot: Rot { position: base, len: header_len, header: None } });
        }
        let mut durable = 0;
        let mut frames = 0;
        let seal = Seal::of_store(self.store_id);
        let mut walk = Walk::new(&file, seal, base, base + header_len, base + bytes);
        while let Some(piece) = walk.next().map_err(io("reading"))? {
            match piece {
                Piece::Bad(rot) => bad.push(Bad { segment: index, rot }),
                Piece::Frame(frame) if frame.kind == KIND_LOG => {
                    if let Some(batch) = BatchHeader::decode(&frame) {
                        found.batches += 1;
                        durable = durable.max(batch.durable_up_to);
                        log_start = log_start.max(batch.log_start);
                    }
                }
                Piece::Frame(frame) => {
                    frames += 1;
                    if self.frame(&frame, found).is_none() {
                        let header = Some(RotHeader { kind: frame.kind, flags: frame.flags, tag: frame.tag });
                        let len = frame_len(frame.body.len()) as u64;
                        bad.push(Bad { segment: index, rot: Rot { position: frame.position, len, header } });
                    }
                }
            }
        }
        found.segments.push(SegmentInspection { name: name.to_owned(), base, bytes, frames });
        Ok((durable, log_start))
    }

    /// Adds a frame to what was found; `None` if its checksum is right but its content cannot be understood.
    fn frame(&mut self, frame: &Frame, found: &mut LogInspection) -> Option<()> {
        let bytes = frame_len(frame.body.len()) as u64;
        let kind = kind_name(frame.kind);
        let counted = found.frames.entry(kind).or_default();
        *counted = (counted.0 + 1, counted.1 + bytes);
        let (log, position, number) = (self.log, frame.position, frame.tag);
        (self.each)(Entry { log, position, kind, number, bytes, id: id_of(frame) });
        if self.prefix == "l" {
            self.letters.fold_letter_log(frame)
        } else {
            self.letters.fold_journal(frame)
        }
    }
}

enum SegmentError {
    Vanished,
    Failed(EngineError),
}

fn missing(found: &LogInspection, log_start: u64) -> Vec<Range<u64>> {
    let mut missing = Vec::new();
    let mut expected = log_start;
    for segment in found.segments.iter().filter(|segment| segment.base >= log_start) {
        // A file that vanished meanwhile was dropped by the owner.
        if segment.base > expected && found.vanished == 0 {
            missing.push(expected..segment.base);
        }
        expected = segment.base + segment.bytes;
    }
    missing
}

fn id_of(frame: &Frame) -> Option<String> {
    let wire = match frame.kind {
        kind::ACCEPTED => AcceptedBody::read(frame.body.clone())?.wire,
        kind::WAITING | kind::DEAD | kind::MOVED => Stored::read(frame.body.clone())?.wire,
        _ => return None,
    };
    Message::from_wire(wire).ok().map(|message| message.id().to_owned())
}
