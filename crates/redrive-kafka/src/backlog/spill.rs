//! Spills waiting messages to files: those that do not fit into memory and are not due for a while.
//!
//! Kafka is the source of truth, so nothing here is synced. A file that cannot be written or read costs memory or a
//! repeat, never a message.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive::internal::engine::history::History;
use redrive_core::{Message, Reason};

use crate::record::meta::{META_BYTES, get_meta, get_part, get_time, put_meta, put_time};
use crate::record::{Carried, WaitingMessage};

/// Once a file has reached this size, the next one is begun; it is removed when it is empty.
const FILE_BYTES: u64 = 32 << 20;
/// Bound on the number of files. Beyond it messages stay in memory, within the bounds of their lanes.
const FILES_MAX: usize = 64;

/// Where a spilled message is stored.
#[derive(Clone, Copy, Debug)]
pub struct Spilled {
    file: u64,
    at: u64,
    len: u32,
    /// The checksum of its bytes. It is kept in memory only: the files never outlive the process.
    crc: u32,
}

#[derive(Debug)]
struct SpillFile {
    number: u64,
    path: PathBuf,
    file: File,
    written: u64,
    live: u64,
}

#[derive(Debug)]
pub struct Spill {
    dir: PathBuf,
    parts: Vec<SpillFile>,
    next: u64,
    buffer: BytesMut,
    /// Whether the warning was logged. It is logged once, as a directory that cannot be written tends to stay so.
    complained: bool,
}

impl Spill {
    /// Uses a directory of its own in `state_dir`, which members on one machine may share, and removes the directories
    /// of processes that are gone.
    pub fn new(state_dir: &Path, pipeline: &str) -> Self {
        static SPILLS: AtomicU32 = AtomicU32::new(0);
        remove_left_over(state_dir);
        let number = SPILLS.fetch_add(1, Ordering::Relaxed);
        let dir = state_dir.join(format!("{pipeline}.{number}.{}.spill", std::process::id()));
        Self { dir, parts: Vec::new(), next: 0, buffer: BytesMut::new(), complained: false }
    }

    /// Writes a message to a file; `None` if it has to stay in memory.
    pub fn write(&mut self, waiting: &WaitingMessage) -> Option<Spilled> {
        if self.parts.last().is_none_or(|part| part.written >= FILE_BYTES) && !self.begin() {
            return None;
        }
        self.buffer.clear();
        encode(&mut self.buffer, waiting);
        let part = self.parts.last_mut()?;
        if part.file.write_all(&self.buffer).is_err() {
            // The partial write is beyond everything that is referenced; the next message begins a new file.
            part.written = u64::MAX;
            return None;
        }
        let spilled = Spilled {
            file: part.number,
            at: part.written,
            len: self.buffer.len() as u32,
            crc: crc32fast::hash(&self.buffer),
        };
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
                self.parts.push(SpillFile { number: self.next, path, file, written: 0, live: 0 });
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

    /// Reads a message back; `None` if its bytes cannot be read or are damaged.
    pub fn read(&self, spilled: &Spilled) -> Option<WaitingMessage> {
        let part = self.parts.iter().find(|part| part.number == spilled.file)?;
        let mut bytes = vec![0; spilled.len as usize];
        part.file.read_exact_at(&mut bytes, spilled.at).ok()?;
        if crc32fast::hash(&bytes) != spilled.crc {
            return None;
        }
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

/// Bytes before the parts of variable length.
const HEAD_BYTES: usize = 8 + 8 + 8 + 1 + 1 + 8 + META_BYTES;

fn encode(buffer: &mut BytesMut, waiting: &WaitingMessage) {
    let WaitingMessage { offset, number, message, meta, history, due, doomed, carried, arrived: _ } = waiting;
    buffer.put_u64_le(*offset);
    buffer.put_u64_le(*number);
    put_time(buffer, *due);
    buffer.put_u8(doomed.map_or(0, Reason::code));
    buffer.put_u8(u8::from(carried.job.is_some()));
    buffer.put_u64_le(carried.job.unwrap_or_default());
    put_meta(buffer, meta);
    let topic = carried.topic.as_deref().unwrap_or_default();
    for part in [topic.as_bytes(), history.raw(), message.wire()] {
        buffer.put_u32_le(part.len() as u32);
        buffer.put_slice(part);
    }
}

/// Returns `None` if these bytes are not a message. Never panics, whatever the file holds.
fn decode(mut bytes: Bytes) -> Option<WaitingMessage> {
    if bytes.len() < HEAD_BYTES {
        return None;
    }
    let bytes = &mut bytes;
    let (offset, number, due) = (bytes.get_u64_le(), bytes.get_u64_le(), get_time(bytes));
    let doomed = Reason::from_code(bytes.get_u8());
    let (has_job, job) = (bytes.get_u8() != 0, bytes.get_u64_le());
    let meta = get_meta(bytes)?;
    let mut part = || {
        let len = (bytes.len() >= 4).then(|| bytes.get_u32_le())?;
        get_part(bytes, len as usize)
    };
    let (topic, history, wire) = (part()?, part()?, part()?);
    let topic = (!topic.is_empty()).then(|| Arc::from(String::from_utf8_lossy(&topic)));
    Some(WaitingMessage {
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

#[cfg(test)]
mod tests {
    use redrive_core::{Meta, Time};

    use super::*;

    fn waiting() -> WaitingMessage {
        WaitingMessage {
            offset: 7,
            number: 9,
            message: Message::builder("o-1").key("k").payload("{}").build().unwrap(),
            meta: Meta { attempts: 3, deferred: true, ..Meta::default() },
            history: History::default(),
            due: Some(Time::from_millis(5_000)),
            arrived: None,
            doomed: None,
            carried: Carried { topic: Some("orders".into()), job: Some(4) },
        }
    }

    /// The length of a part used to be trusted as it was in the file.
    #[test]
    fn damaged_bytes_are_no_message_and_no_panic() {
        let mut buffer = BytesMut::new();
        encode(&mut buffer, &waiting());
        let whole = buffer.freeze();
        assert!(decode(whole.clone()).is_some_and(|back| back.meta == waiting().meta));
        for len in 0..whole.len() {
            assert!(decode(whole.slice(..len)).is_none(), "{len} of {} bytes", whole.len());
        }
        for at in 0..whole.len() {
            let mut damaged = BytesMut::from(&whole[..]);
            damaged[at] = 0xff;
            let _ = decode(damaged.freeze());
        }
    }

    #[test]
    fn a_flipped_bit_in_the_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(dir.path(), "orders");
        let spilled = spill.write(&waiting()).unwrap();
        assert!(spill.read(&spilled).is_some());
        let file = &spill.parts[0].file;
        for at in 0..u64::from(spilled.len) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            assert!(spill.read(&spilled).is_none(), "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        assert!(spill.read(&spilled).is_some());
    }
}
