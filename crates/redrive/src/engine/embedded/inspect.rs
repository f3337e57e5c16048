//! Reads a store without opening it: nothing is locked, cut, repaired or written. For people in trouble.
//!
//! The rules for damage are those of `log_open.rs`. A running owner is no hindrance: files only grow or disappear, and
//! what is not finished at the end counts as such.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redrive_core::Message;

use super::dir;
use super::disk::DiskFile;
use super::frame::{Frame, KIND_LOG, Rot, Seal, frame_len};
use super::log_error::LogError;
use super::record::{AcceptedBody, Ended, LetterChanged, SlotCopy, Stored, Was, get_seqs, kind};
use super::scan::{Piece, Walk};
use super::segment::{self, BatchHeader, SegmentHeader};
use crate::engine::letter::LetterState;
use crate::engine::seam::EngineError;

/// What a store holds and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub pipeline: String,
    pub path: PathBuf,
    pub format: u32,
    pub store_id: String,
    /// The process that has the directory open now.
    pub owner: Option<u32>,
    pub journal: LogInspection,
    pub letter_log: LogInspection,
    /// How many letters are in each state.
    pub letters: BTreeMap<&'static str, u64>,
}

/// One of the two logs of a store.
#[derive(Clone, Debug, Default)]
pub struct LogInspection {
    pub segments: Vec<SegmentInspection>,
    /// Frames and their bytes, by kind.
    pub frames: BTreeMap<&'static str, (u64, u64)>,
    pub batches: u64,
    pub damage: Vec<Damage>,
    /// Bytes at the end that a crash tore or that are being written now. Nobody was told that they are safe.
    pub unfinished_bytes: u64,
    /// Positions that no file holds although they were not given up.
    pub missing: Vec<Range<u64>>,
    /// Segments that were given up and are still there.
    pub leftovers: usize,
    /// Files that disappeared while they were read, which a running owner may do.
    pub vanished: usize,
    pub start: u64,
    pub end: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInspection {
    pub name: String,
    pub base: u64,
    pub bytes: u64,
    pub frames: u64,
}

/// A stretch that was durable and cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub segment: String,
    pub position: u64,
    /// Where in the file that is.
    pub offset: u64,
    pub bytes: u64,
    /// What stood there, if its header is intact: the kind of frame and the number of the message.
    pub was: Option<(&'static str, u64)>,
}

/// One frame, for people who want to see them all. Never a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub log: &'static str,
    pub position: u64,
    pub kind: &'static str,
    /// The number of the message, where the frame is about one.
    pub number: u64,
    pub bytes: u64,
    /// The id of the message, where the frame holds it.
    pub id: Option<String>,
}

impl Inspection {
    pub fn is_damaged(&self) -> bool {
        [&self.journal, &self.letter_log].iter().any(|log| !log.damage.is_empty() || !log.missing.is_empty())
    }
}

/// The pipelines that have a store in a directory of the embedded engine.
pub fn pipelines(path: &Path) -> Result<Vec<String>, EngineError> {
    dir::format_of(path)?;
    let listed = fs::read_dir(path).map_err(|error| failed("listing", path, &error))?;
    let mut names = Vec::new();
    for entry in listed {
        let entry = entry.map_err(|error| failed("listing", path, &error))?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.path().join("journal").is_dir()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Reads the whole store of a pipeline; `each` sees every frame.
pub fn inspect(path: &Path, pipeline: &str, each: &mut dyn FnMut(Entry)) -> Result<Inspection, EngineError> {
    let (format, store_id) = dir::format_of(path)?;
    let store = path.join(pipeline);
    let journal = store.join("journal");
    if !journal.is_dir() {
        return Err(EngineError::Damaged(format!("{}: there is no store `{pipeline}`", path.display())));
    }
    let mut letters = Letters::default();
    let mut read = |prefix, log| {
        let mut walk =
            LogWalk { dir: &journal, prefix, log, store_id, letters: &mut letters, each: &mut *each };
        walk.read()
    };
    // The letter log comes first: the journal says what became of its letters later.
    let letter_log = read("l", "letters")?;
    let journal = read("j", "journal")?;
    let store_id = format!("{:032x}", u128::from_be_bytes(store_id));
    let (owner, letters) = (owner(path), letters.counts());
    Ok(Inspection {
        pipeline: pipeline.to_owned(),
        path: store,
        format,
        store_id,
        owner,
        journal,
        letter_log,
        letters,
    })
}

/// Who holds the lock, by the list the kernel keeps: asking by locking could get in the way of an owner that starts.
fn owner(path: &Path) -> Option<u32> {
    let inode = fs::metadata(path.join(dir::LOCK_FILE)).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1).filter(|field| *field != "->");
        let is_flock = fields.next() == Some("FLOCK");
        let pid = fields.nth(2)?.parse().ok()?;
        let place = fields.next()?.rsplit(':').next()?.parse::<u64>().ok()?;
        (is_flock && place == inode).then_some(pid)
    })
}

#[derive(Default)]
struct Letters(HashMap<u64, LetterState>);

impl Letters {
    fn set(&mut self, seq: u64, state: LetterState) {
        if let Some(letter) = self.0.get_mut(&seq) {
            *letter = state;
        }
    }

    fn fold_letter_log(&mut self, frame: &Frame) -> Option<()> {
        match frame.kind {
            kind::DEAD => {
                let stored = Stored::read(frame.body.clone())?;
                self.0.insert(frame.tag, stored.state.unwrap_or(LetterState::Open));
            }
            kind::LETTER_SLOT => self.set(frame.tag, SlotCopy::read(frame.body.clone())?.state),
            kind::PURGED => {
                self.0.remove(&frame.tag);
            }
            _ => {}
        }
        Some(())
    }

    fn fold_journal(&mut self, frame: &Frame) -> Option<()> {
        match frame.kind {
            kind::DEAD => {
                Stored::read(frame.body.clone())?;
                self.0.insert(frame.tag, LetterState::Open);
            }
            kind::WAITING if Stored::read(frame.body.clone())?.was == Was::Letter => {
                self.set(frame.tag, LetterState::Replaying);
            }
            kind::ENDED => {
                for ended in Ended::read_all(&frame.body).filter(|ended| ended.letter) {
                    self.set(ended.seq, LetterState::Succeeded);
                }
            }
            kind::LETTER_STATE => {
                let changed = LetterChanged::read(frame.body.clone())?;
                changed.seqs.iter().for_each(|seq| self.set(*seq, changed.state));
            }
            kind::PURGED => get_seqs(&frame.body).for_each(|seq| {
                self.0.remove(&seq);
            }),
            _ => {}
        }
        Some(())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for state in self.0.values() {
            *counts.entry(state.name()).or_default() += 1;
        }
        counts
    }
}

struct LogWalk<'a> {
    dir: &'a Path,
    prefix: &'static str,
    log: &'static str,
    store_id: [u8; 16],
    letters: &'a mut Letters,
    each: &'a mut dyn FnMut(Entry),
}

struct Bad {
    segment: usize,
    rot: Rot,
}

impl LogWalk<'_> {
    fn read(&mut self) -> Result<LogInspection, EngineError> {
        let mut found = LogInspection::default();
        let mut bases = self.bases()?;
        bases.sort_unstable();
        let (mut bad, mut durable, mut log_start) = (Vec::new(), 0, 0);
        for (i, base) in bases.iter().enumerate() {
            let name = segment::file_name(self.prefix, *base);
            // What lies behind the base of the next segment has no position.
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
        found.start = log_start;
        found.leftovers = found.segments.iter().filter(|segment| segment.base < log_start).count();
        found.end = found.segments.last().map_or(0, |segment| segment.base + segment.bytes);
        found.missing = missing(&found, log_start);
        let last = found.segments.len().saturating_sub(1);
        for Bad { segment, rot } in bad {
            let (at, behind) = (&found.segments[segment], rot.position + rot.len);
            if at.base < log_start {
                continue;
            }
            let unfinished =
                if segment == last { behind.saturating_sub(durable.max(rot.position)) } else { 0 };
            if unfinished > 0 {
                // The log is cut at the first such place, with everything behind it.
                let cut = rot.position.max(durable);
                found.unfinished_bytes = found.unfinished_bytes.max(found.end - cut);
            }
            let bytes = rot.len - unfinished;
            if bytes > 0 {
                found.damage.push(Damage {
                    segment: at.name.clone(),
                    position: rot.position,
                    offset: rot.position - at.base,
                    bytes,
                    was: rot.header.map(|header| (kind_name(header.kind), header.tag)),
                });
            }
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

    /// Walks one segment; returns how far it says the log is durable and where the log starts.
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
                        let header = Some(super::frame::RotHeader {
                            kind: frame.kind,
                            flags: frame.flags,
                            tag: frame.tag,
                        });
                        let len = frame_len(frame.body.len()) as u64;
                        bad.push(Bad { segment: index, rot: Rot { position: frame.position, len, header } });
                    }
                }
            }
        }
        found.segments.push(SegmentInspection { name: name.to_owned(), base, bytes, frames });
        Ok((durable, log_start))
    }

    /// `None`: its checksum is right and yet it says nothing that can be understood.
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
        // A file that vanished meanwhile was given up by the owner.
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

/// The word for a kind of frame.
pub fn kind_name(kind: u8) -> &'static str {
    match kind {
        KIND_LOG => "log",
        kind::ACCEPTED => "accepted",
        kind::DONE => "done",
        kind::ENDED => "ended",
        kind::WAITING => "waiting",
        kind::DEAD => "dead",
        kind::BLOCKED => "blocked",
        kind::MOVED => "moved",
        kind::LETTER_STATE => "letter_state",
        kind::LETTER_MOVED => "letter_moved",
        kind::PURGED => "purged",
        kind::SEEN => "seen",
        kind::LETTER_SLOT => "letter_slot",
        _ => "unknown",
    }
}

/// A file that cannot be written through this handle, whatever the code above it tries.
#[derive(Debug)]
struct ReadOnly(File);

impl DiskFile for ReadOnly {
    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> EngineError {
    EngineError::Storage(format!("{what} {}: {error}", path.display()))
}
