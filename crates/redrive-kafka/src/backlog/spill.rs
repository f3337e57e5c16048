//! Waiting messages in files: what has no place in memory and is not due for a while.
//!
//! Kafka holds the truth, so nothing here is synced, and a file that cannot be written or read costs memory or a repeat,
//! never a message.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive::engine::history::History;
use redrive_core::{Message, Meta, Reason, Time};

use crate::record::{Carried, Waiting};

/// A file that has this much is left to become empty, and the next one begun.
const FILE_BYTES: u64 = 32 << 20;
/// All files together; beyond it memory is used, and the lanes' own bounds hold.
const FILES_MAX: usize = 64;

/// Where a message lies.
#[derive(Clone, Copy, Debug)]
pub struct Spilled {
    file: u64,
    at: u64,
    len: u32,
}

#[derive(Debug)]
struct Part {
    number: u64,
    path: PathBuf,
    file: File,
    written: u64,
    live: u64,
}

#[derive(Debug)]
pub struct Spill {
    dir: PathBuf,
    parts: Vec<Part>,
    next: u64,
    buffer: BytesMut,
    /// Said once: a directory that cannot be written stays so.
    complained: bool,
}

impl Spill {
    /// Files in a directory of their own in `state_dir`, which members on one machine may share. What processes that are
    /// gone left there is removed.
    pub fn new(state_dir: &Path, pipeline: &str) -> Self {
        static SPILLS: AtomicU32 = AtomicU32::new(0);
        remove_left_over(state_dir);
        let number = SPILLS.fetch_add(1, Ordering::Relaxed);
        let dir = state_dir.join(format!("{pipeline}.{number}.{}.spill", std::process::id()));
        Self { dir, parts: Vec::new(), next: 0, buffer: BytesMut::new(), complained: false }
    }

    /// `None` if it has to stay in memory.
    pub fn write(&mut self, waiting: &Waiting) -> Option<Spilled> {
        if self.parts.last().is_none_or(|part| part.written >= FILE_BYTES) && !self.begin() {
            return None;
        }
        self.buffer.clear();
        encode(&mut self.buffer, waiting);
        let part = self.parts.last_mut()?;
        if part.file.write_all(&self.buffer).is_err() {
            // What was written in part lies behind everything that is pointed to: the next one begins a new file.
            part.written = u64::MAX;
            return None;
        }
        let spilled = Spilled { file: part.number, at: part.written, len: self.buffer.len() as u32 };
        part.written += self.buffer.len() as u64;
        part.live += 1;
        Some(spilled)
    }

    fn begin(&mut self) -> bool {
        if self.parts.len() >= FILES_MAX {
            return false;
        }
        let path = self.dir.join(format!("{}.spill", self.next));
        let opened = std::fs::create_dir_all(&self.dir).and_then(|()| {
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)
        });
        match opened {
            Ok(file) => {
                self.parts.push(Part { number: self.next, path, file, written: 0, live: 0 });
                self.next += 1;
                true
            }
            Err(error) => {
                if !self.complained {
                    tracing::warn!(%error, dir = %self.dir.display(), "waiting messages stay in memory");
                }
                self.complained = true;
                false
            }
        }
    }

    pub fn read(&self, spilled: &Spilled) -> Option<Waiting> {
        let part = self.parts.iter().find(|part| part.number == spilled.file)?;
        let mut bytes = vec![0; spilled.len as usize];
        part.file.read_exact_at(&mut bytes, spilled.at).ok()?;
        decode(Bytes::from(bytes))
    }

    pub fn free(&mut self, spilled: &Spilled) {
        let Some(at) = self.parts.iter().position(|part| part.number == spilled.file) else { return };
        self.parts[at].live -= 1;
        let is_last = at + 1 == self.parts.len();
        if self.parts[at].live == 0 && (!is_last || self.parts[at].written >= FILE_BYTES) {
            let part = self.parts.remove(at);
            let _ = std::fs::remove_file(part.path);
        }
    }

    pub fn clear(&mut self) {
        for part in self.parts.drain(..) {
            let _ = std::fs::remove_file(part.path);
        }
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.clear();
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Removes the directories of processes that do not run any more.
fn remove_left_over(state_dir: &Path) {
    let Ok(entries) = std::fs::read_dir(state_dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_suffix(".spill"));
        let owner = owner.and_then(|name| name.rsplit('.').next()).and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn put_time(buffer: &mut BytesMut, time: Option<Time>) {
    // Times are never the very first instant: there a due time and no due time mean the same.
    buffer.put_u64_le(time.map_or(0, |time| time.as_millis().saturating_add(1)));
}

fn get_time(bytes: &mut Bytes) -> Option<Time> {
    bytes.get_u64_le().checked_sub(1).map(Time::from_millis)
}

fn encode(buffer: &mut BytesMut, waiting: &Waiting) {
    let Waiting { offset, number, message, meta, history, due, doomed, carried, arrived: _ } = waiting;
    buffer.put_u64_le(*offset);
    buffer.put_u64_le(*number);
    put_time(buffer, *due);
    buffer.put_u8(doomed.map_or(0, Reason::code));
    buffer.put_u8(u8::from(carried.job.is_some()) | u8::from(meta.deferred) << 1);
    buffer.put_u64_le(carried.job.unwrap_or_default());
    buffer.put_u64_le(meta.created.as_millis());
    put_time(buffer, meta.deadline);
    for count in [meta.attempts, meta.uncounted, meta.reconnects, meta.crashes, meta.replays] {
        buffer.put_u32_le(count);
    }
    put_time(buffer, meta.last_crash);
    put_time(buffer, meta.first_failed);
    buffer.put_u64_le(meta.held_ms);
    buffer.put_u64_le(meta.last_delay_ms);
    let topic = carried.topic.as_deref().unwrap_or_default();
    for part in [topic.as_bytes(), history.raw(), message.wire()] {
        buffer.put_u32_le(part.len() as u32);
        buffer.put_slice(part);
    }
}

fn decode(mut bytes: Bytes) -> Option<Waiting> {
    let bytes = &mut bytes;
    let (offset, number, due) = (bytes.get_u64_le(), bytes.get_u64_le(), get_time(bytes));
    let doomed = Reason::from_code(bytes.get_u8());
    let (flags, job) = (bytes.get_u8(), bytes.get_u64_le());
    let (has_job, deferred) = (flags & 1 != 0, flags & 2 != 0);
    let mut meta = Meta {
        created: Time::from_millis(bytes.get_u64_le()),
        deadline: get_time(bytes),
        attempts: bytes.get_u32_le(),
        uncounted: bytes.get_u32_le(),
        reconnects: bytes.get_u32_le(),
        crashes: bytes.get_u32_le(),
        replays: bytes.get_u32_le(),
        deferred,
        ..Meta::default()
    };
    meta.last_crash = get_time(bytes);
    meta.first_failed = get_time(bytes);
    meta.held_ms = bytes.get_u64_le();
    meta.last_delay_ms = bytes.get_u64_le();
    let mut part = || {
        let len = bytes.get_u32_le() as usize;
        bytes.split_to(len)
    };
    let (topic, history, wire) = (part(), part(), part());
    let topic = (!topic.is_empty()).then(|| Arc::from(String::from_utf8_lossy(&topic)));
    Some(Waiting {
        offset,
        number,
        message: Message::from_wire(wire).ok()?,
        meta,
        history: History::from_raw(history),
        due,
        arrived: None,
        doomed,
        carried: Carried { topic, job: has_job.then_some(job) },
    })
}
