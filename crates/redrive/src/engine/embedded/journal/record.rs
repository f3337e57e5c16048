//! The records in the journal's frames. Every change of state is a record, so that the state follows from the
//! journal.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive_core::fingerprint::TITLE_BYTES_MAX;
use redrive_core::message::limits;
use redrive_core::{Fingerprint, GroupId, Meta, Reason, Time};

use super::frame::BODY_BYTES_MAX;
use crate::engine::groups::Grouping;
use crate::engine::history::{HISTORY_BYTES_MAX, History};
use crate::engine::letter::LetterState;
use crate::engine::letter_options::OPTIONS_BYTES_MAX;
use crate::engine::meta_codec::{get_meta, put_meta};

/// Kinds of frames on disk. Never renumber; a new kind is a new format version.
pub mod kind {
    /// A message was accepted, ready or delayed. The tag is its number.
    pub const ACCEPTED: u8 = 1;
    /// Fresh messages without a key were delivered: a list of their numbers.
    pub const DONE: u8 = 2;
    /// Messages were delivered that had waited, have a key, or were letters.
    pub const ENDED: u8 = 3;
    /// A message waits for its due time; holds its whole content.
    pub const WAITING: u8 = 4;
    /// A message is a dead letter; holds its whole content. Also written when an edit replaces the message.
    pub const DEAD: u8 = 5;
    /// Messages wait behind an earlier one of their key; their content stays in its old frame.
    pub const BLOCKED: u8 = 6;
    /// The cleaner copied a waiting or blocked message.
    pub const MOVED: u8 = 7;
    /// Letters were discarded or restored.
    pub const LETTER_STATE: u8 = 8;
    /// The cleaner copied letters into the letter log.
    pub const LETTER_MOVED: u8 = 9;
    /// Resolved letters were purged after their retention.
    pub const PURGED: u8 = 10;
    /// Ids of messages whose frames the cleaner dropped, kept for deduplication.
    pub const SEEN: u8 = 11;
    /// In the letter log: the state of a letter whose state frames the cleaner dropped.
    pub const LETTER_SLOT: u8 = 12;
}

/// Written in place of a reason if a message waits because it was deferred. No reason has this code.
const DEFERRED: u8 = 0xff;

/// Marks a [`kind::MOVED`] frame whose message is blocked behind its key; otherwise it waits for its due time.
pub const FLAG_BLOCKED: u8 = 1;

const NONE: u64 = u64::MAX;

/// The state of a message before this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    Fresh,
    Waiting { due: u64 },
    Blocked,
    Letter,
}

/// The body of an accepted message.
#[derive(Clone, Debug)]
pub struct AcceptedBody {
    pub due: Option<u64>,
    pub at: u64,
    pub wire: Bytes,
}

impl AcceptedBody {
    pub const FIXED_BYTES: usize = 16;

    pub fn write(buf: &mut BytesMut, due: Option<Time>, at: Time, wire: &[u8]) {
        buf.put_u64_le(due.map_or(NONE, |due| due.as_millis().min(NONE - 1)));
        buf.put_u64_le(at.as_millis());
        buf.put_slice(wire);
    }

    pub fn read(mut body: Bytes) -> Option<Self> {
        if body.len() < Self::FIXED_BYTES {
            return None;
        }
        let due = body.get_u64_le();
        let at = body.get_u64_le();
        Some(Self { due: (due != NONE).then_some(due), at, wire: body })
    }
}

/// A message with its whole state: the body of waiting, dead and moved frames, and of copies in the letter log.
#[derive(Clone, Debug)]
pub struct Stored {
    pub was: Was,
    /// The hash of its key, if it is in the key's line.
    pub key: Option<u64>,
    /// When it is or was due; `None` if it never had a due time.
    pub due: Option<u64>,
    /// All its replay jobs, so that none of the earlier frames is needed.
    pub jobs: Vec<u64>,
    /// Set for letters.
    pub reason: Option<Reason>,
    pub state: Option<LetterState>,
    pub dead_at: u64,
    /// The position from which a moved frame was copied.
    pub moved_from: u64,
    pub meta: Meta,
    pub history: Bytes,
    /// The group of a letter; `None` if an older version wrote it.
    pub group: Option<Fingerprint>,
    /// The policy under which a letter died; `None` if an older version wrote it.
    pub options: Option<Bytes>,
    /// The versions of a letter's message replaced by edits, the latest last.
    pub replaced: Vec<ReplacedWire>,
    pub wire: Bytes,
}

/// A version of a letter's message that an edit replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedWire {
    pub edit: String,
    pub wire: Bytes,
}

/// Bits in the flags byte.
const HAS_KEY: u8 = 1;
const HAS_GROUP: u8 = 2;
const HAS_REPLACED: u8 = 4;
const HAS_OPTIONS: u8 = 8;

/// Every accepted message fits into a frame as a letter, with any history and the maximum number of remembered jobs. So
/// no message can be refused when it dies, when nobody could be told.
const _: () = {
    let headers = limits::HEADERS_BYTES_MAX + limits::HEADERS_MAX * 8;
    let message = limits::PAYLOAD_BYTES_MAX + headers + limits::KEY_BYTES_MAX + limits::ID_BYTES_MAX;
    let story = HISTORY_BYTES_MAX + TITLE_BYTES_MAX + GROUP_FIXED_BYTES + 8 * u16::MAX as usize;
    let story = story + 2 + OPTIONS_BYTES_MAX;
    assert!(Stored::FIXED_BYTES + message + limits::TENANT_BYTES_MAX + 64 + story < BODY_BYTES_MAX);
};

impl Stored {
    const FIXED_BYTES: usize = 118;

    pub fn len_hint(&self) -> usize {
        let group = self.group.as_ref().map_or(0, |group| GROUP_FIXED_BYTES + group.title.len());
        let options = self.options.as_ref().map_or(0, |options| 2 + options.len());
        let story = self.jobs.len() * 8 + self.history.len() + group + options;
        Self::FIXED_BYTES + story + replaced_len(&self.replaced) + self.wire.len()
    }

    /// The group of a letter: the stored one, or one computed now.
    pub fn fingerprint(&self, grouping: &Grouping, reason: Reason) -> Fingerprint {
        match &self.group {
            Some(group) => group.clone(),
            None => grouping.of_ungrouped(reason, &History::from_raw(self.history.clone())),
        }
    }

    pub fn write(&self, buf: &mut BytesMut) {
        put_was(buf, self.was);
        let has_key = if self.key.is_some() { HAS_KEY } else { 0 };
        let has_group = if self.group.is_some() { HAS_GROUP } else { 0 };
        let has_replaced = if self.replaced.is_empty() { 0 } else { HAS_REPLACED };
        let options = self.options.as_ref().filter(|options| options.len() <= OPTIONS_BYTES_MAX);
        let has_options = if options.is_some() { HAS_OPTIONS } else { 0 };
        buf.put_u8(has_key | has_group | has_replaced | has_options);
        buf.put_u64_le(self.key.unwrap_or(0));
        buf.put_u64_le(self.due.unwrap_or(NONE));
        let waits = if self.meta.deferred { DEFERRED } else { 0 };
        buf.put_u8(self.reason.map_or(waits, Reason::code));
        buf.put_u8(self.state.map_or(0, LetterState::code));
        buf.put_u64_le(self.dead_at);
        buf.put_u64_le(self.moved_from);
        put_meta(buf, &self.meta);
        buf.put_u16_le(self.jobs.len() as u16);
        buf.put_u32_le(self.history.len() as u32);
        put_seqs(buf, &self.jobs);
        buf.put_slice(&self.history);
        if let Some(group) = &self.group {
            put_group(buf, group);
        }
        if let Some(options) = options {
            buf.put_u16_le(options.len() as u16);
            buf.put_slice(options);
        }
        put_replaced(buf, &self.replaced);
        buf.put_slice(&self.wire);
    }

    pub fn read(mut body: Bytes) -> Option<Self> {
        if body.len() < Self::FIXED_BYTES {
            return None;
        }
        let was = get_was(&mut body)?;
        let (has, key) = (body.get_u8(), body.get_u64_le());
        let key = (has & HAS_KEY != 0).then_some(key);
        let due = some(body.get_u64_le());
        let reason = body.get_u8();
        let (deferred, reason) = (reason == DEFERRED, Reason::from_code(reason));
        let state = LetterState::from_code(body.get_u8());
        let dead_at = body.get_u64_le();
        let moved_from = body.get_u64_le();
        let meta = Meta { deferred, ..get_meta(&mut body)? };
        let jobs = usize::from(body.get_u16_le()) * 8;
        let history = body.get_u32_le() as usize;
        if body.len() < jobs + history {
            return None;
        }
        let jobs = get_seqs(&body.split_to(jobs)).collect();
        let history = body.split_to(history);
        let group = if has & HAS_GROUP == 0 { None } else { Some(get_group(&mut body)?) };
        let options = if has & HAS_OPTIONS == 0 { None } else { Some(get_options(&mut body)?) };
        let replaced = if has & HAS_REPLACED == 0 { Vec::new() } else { get_replaced(&mut body)? };
        Some(Self {
            was,
            key,
            due,
            jobs,
            reason,
            state,
            dead_at,
            moved_from,
            meta,
            history,
            group,
            options,
            replaced,
            wire: body,
        })
    }
}

/// A delivered message that was more than fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub seq: u64,
    pub was: Was,
    pub key: Option<u64>,
    /// Whether it was a dead letter, which has thereby succeeded.
    pub letter: bool,
}

impl Ended {
    pub const BYTES: usize = 8 + 9 + 9 + 1;

    pub fn write(&self, buf: &mut BytesMut) {
        buf.put_u64_le(self.seq);
        put_was(buf, self.was);
        put_key(buf, self.key);
        buf.put_u8(u8::from(self.letter));
    }

    pub fn read_all(body: &Bytes) -> impl Iterator<Item = Self> {
        body.chunks_exact(Self::BYTES).filter_map(|mut raw| {
            let (seq, was, key) = (raw.get_u64_le(), get_was(&mut raw)?, get_key(&mut raw));
            Some(Self { seq, was, key, letter: raw.get_u8() != 0 })
        })
    }
}

/// A message that waits behind its key, and the frame with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub seq: u64,
    pub was: Was,
    pub key: u64,
    pub at: u64,
    pub len: u32,
}

impl Blocked {
    pub const BYTES: usize = 8 + 9 + 8 + 12;

    pub fn write(&self, buf: &mut BytesMut) {
        buf.put_u64_le(self.seq);
        put_was(buf, self.was);
        buf.put_u64_le(self.key);
        buf.put_u64_le(self.at);
        buf.put_u32_le(self.len);
    }

    pub fn read_all(body: &Bytes) -> impl Iterator<Item = Self> {
        body.chunks_exact(Self::BYTES).filter_map(|mut raw| {
            Some(Self {
                seq: raw.get_u64_le(),
                was: get_was(&mut raw)?,
                key: raw.get_u64_le(),
                at: raw.get_u64_le(),
                len: raw.get_u32_le(),
            })
        })
    }
}

/// A letter that the cleaner copied to the letter log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterMoved {
    pub seq: u64,
    pub from: u64,
    pub to: u64,
    pub len: u32,
}

impl LetterMoved {
    const BYTES: usize = 28;

    pub fn write(&self, buf: &mut BytesMut) {
        buf.put_u64_le(self.seq);
        buf.put_u64_le(self.from);
        buf.put_u64_le(self.to);
        buf.put_u32_le(self.len);
    }

    pub fn read_all(body: &Bytes) -> impl Iterator<Item = Self> {
        body.chunks_exact(Self::BYTES).map(|mut raw| Self {
            seq: raw.get_u64_le(),
            from: raw.get_u64_le(),
            to: raw.get_u64_le(),
            len: raw.get_u32_le(),
        })
    }
}

/// An accepted id, for deduplication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub seq: u64,
    pub at: u64,
    pub id: Bytes,
}

impl Seen {
    pub fn write(&self, buf: &mut BytesMut) {
        buf.put_u64_le(self.seq);
        buf.put_u64_le(self.at);
        buf.put_u16_le(self.id.len() as u16);
        buf.put_slice(&self.id);
    }

    pub fn read_all(mut body: Bytes) -> Vec<Self> {
        let mut all = Vec::new();
        while body.len() >= 18 {
            let (seq, at, len) = (body.get_u64_le(), body.get_u64_le(), usize::from(body.get_u16_le()));
            if body.len() < len {
                break;
            }
            all.push(Self { seq, at, id: body.split_to(len) });
        }
        all
    }
}

/// Letters whose state changed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterChanged {
    pub state: LetterState,
    pub seqs: Vec<u64>,
}

impl LetterChanged {
    pub fn write(&self, buf: &mut BytesMut) {
        buf.put_u8(self.state.code());
        put_seqs(buf, &self.seqs);
    }

    pub fn read(mut body: Bytes) -> Option<Self> {
        if body.is_empty() {
            return None;
        }
        let state = LetterState::from_code(body.get_u8())?;
        Some(Self { state, seqs: get_seqs(&body).collect() })
    }
}

/// A letter's state, as stored in the letter log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotCopy {
    pub state: LetterState,
    pub replays: u32,
    pub jobs: Vec<u64>,
}

impl SlotCopy {
    pub fn len_hint(&self) -> usize {
        5 + self.jobs.len() * 8
    }

    pub fn write(&self, buf: &mut BytesMut) {
        buf.put_u8(self.state.code());
        buf.put_u32_le(self.replays);
        put_seqs(buf, &self.jobs);
    }

    pub fn read(mut body: Bytes) -> Option<Self> {
        if body.len() < 5 {
            return None;
        }
        let state = LetterState::from_code(body.get_u8())?;
        Some(Self { state, replays: body.get_u32_le(), jobs: get_seqs(&body).collect() })
    }
}

pub fn put_seqs(buf: &mut BytesMut, seqs: &[u64]) {
    for seq in seqs {
        buf.put_u64_le(*seq);
    }
}

pub fn get_seqs(body: &Bytes) -> impl Iterator<Item = u64> {
    body.chunks_exact(8).map(|mut raw| raw.get_u64_le())
}

fn some(value: u64) -> Option<u64> {
    (value != NONE).then_some(value)
}

fn put_was(buf: &mut BytesMut, was: Was) {
    let (code, due) = match was {
        Was::Fresh => (0, NONE),
        Was::Waiting { due } => (1, due),
        Was::Blocked => (2, NONE),
        Was::Letter => (3, NONE),
    };
    buf.put_u8(code);
    buf.put_u64_le(due);
}

fn get_was(raw: &mut impl Buf) -> Option<Was> {
    let (code, due) = (raw.get_u8(), raw.get_u64_le());
    match code {
        0 => Some(Was::Fresh),
        1 => Some(Was::Waiting { due }),
        2 => Some(Was::Blocked),
        3 => Some(Was::Letter),
        _ => None,
    }
}

fn put_key(buf: &mut BytesMut, key: Option<u64>) {
    buf.put_u8(u8::from(key.is_some()));
    buf.put_u64_le(key.unwrap_or(0));
}

fn get_key(raw: &mut impl Buf) -> Option<u64> {
    let (has, hash) = (raw.get_u8(), raw.get_u64_le());
    (has != 0).then_some(hash)
}

/// Version, group and the length of the title.
const GROUP_FIXED_BYTES: usize = 1 + 8 + 2;

fn put_group(buf: &mut BytesMut, group: &Fingerprint) {
    // Titles are much shorter; see `fingerprint::TITLE_BYTES_MAX`.
    let title = group.title.as_bytes();
    let title = &title[..title.len().min(usize::from(u16::MAX))];
    buf.put_u8(group.version);
    buf.put_u64_le(group.group.number());
    buf.put_u16_le(title.len() as u16);
    buf.put_slice(title);
}

fn get_group(body: &mut Bytes) -> Option<Fingerprint> {
    if body.len() < GROUP_FIXED_BYTES {
        return None;
    }
    let (version, group, len) = (body.get_u8(), body.get_u64_le(), usize::from(body.get_u16_le()));
    if body.len() < len {
        return None;
    }
    let title = String::from_utf8_lossy(&body.split_to(len)).into_owned();
    Some(Fingerprint { version, group: GroupId::from_number(group), title })
}

fn get_options(body: &mut Bytes) -> Option<Bytes> {
    let len = (body.len() >= 2).then(|| usize::from(body.get_u16_le()))?;
    (body.len() >= len).then(|| body.split_to(len))
}

fn replaced_len(replaced: &[ReplacedWire]) -> usize {
    let each = |version: &ReplacedWire| REPLACED_FIXED_BYTES + version.edit.len() + version.wire.len();
    if replaced.is_empty() { 0 } else { 1 + replaced.iter().map(each).sum::<usize>() }
}

/// The lengths of the edit's name and of the message.
const REPLACED_FIXED_BYTES: usize = 1 + 4;

fn put_replaced(buf: &mut BytesMut, replaced: &[ReplacedWire]) {
    if replaced.is_empty() {
        return;
    }
    // Both numbers are far below 256: see `EDITS_MAX` and `EDIT_NAME_BYTES_MAX`.
    buf.put_u8(replaced.len() as u8);
    for version in replaced {
        buf.put_u8(version.edit.len() as u8);
        buf.put_slice(version.edit.as_bytes());
        buf.put_u32_le(version.wire.len() as u32);
        buf.put_slice(&version.wire);
    }
}

fn get_replaced(body: &mut Bytes) -> Option<Vec<ReplacedWire>> {
    let count = (!body.is_empty()).then(|| body.get_u8())?;
    let mut replaced = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let name = usize::from((!body.is_empty()).then(|| body.get_u8())?);
        if body.len() < name + 4 {
            return None;
        }
        let edit = String::from_utf8_lossy(&body.split_to(name)).into_owned();
        let wire = body.get_u32_le() as usize;
        if body.len() < wire {
            return None;
        }
        replaced.push(ReplacedWire { edit, wire: body.split_to(wire) });
    }
    Some(replaced)
}

#[cfg(test)]
#[path = "tests/record.rs"]
mod tests;
