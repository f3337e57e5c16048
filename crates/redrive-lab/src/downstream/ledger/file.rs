//! The ledger in a file: one id per line as a JSON string, appended and synced before it is confirmed. A single
//! thread writes; ids that wait meanwhile share the next sync.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot};

use super::applied::{Applied, LedgerFault};
use super::ids::{IdSet, Inserted, locked};

/// Ids that may wait for the writer; further callers wait for room.
const WAITING_MAX: usize = 4_096;
/// The longest id; a message id has at most 512 bytes.
pub(super) const ID_BYTES_MAX: usize = 2_048;
/// The longest line: every byte of the id escaped as `\u00XX`.
const LINE_BYTES_MAX: u64 = 6 * ID_BYTES_MAX as u64 + 3;

type Reply = oneshot::Sender<Result<Applied, LedgerFault>>;

#[derive(Debug)]
pub(super) struct FileLedger {
    ids: Arc<Mutex<IdSet>>,
    writer: mpsc::Sender<(String, Reply)>,
    notice: Option<String>,
}

impl FileLedger {
    pub(super) fn open(path: &Path) -> Result<Self, LedgerFault> {
        let fault = |did, error: &dyn std::fmt::Display, fix| LedgerFault::File {
            path: path.display().to_string(),
            did,
            error: error.to_string(),
            fix,
        };
        let check = "check the path and its permissions";
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(|error| fault("cannot be opened", &error, check))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LedgerFault::Locked { path: path.display().to_string() });
            }
            Err(TryLockError::Error(error)) => return Err(fault("cannot be locked", &error, check)),
        }
        let (ids, good_bytes) =
            read(&file).map_err(|error| fault("cannot be read", &error, "repair or remove it"))?;
        let notice = cut_tail(&mut file, good_bytes)
            .and_then(|cut| sync_parent(path).map(|()| cut))
            .map_err(|error| fault("cannot be prepared", &error, check))?;
        let notice = notice.map(|bytes| {
            format!(
                "the ledger file {} ended in {bytes} bytes of an unfinished write; they were cut off",
                path.display()
            )
        });

        let ids = Arc::new(Mutex::new(ids));
        let (writer, waiting) = mpsc::channel(WAITING_MAX);
        let shared = Arc::clone(&ids);
        let thread = std::thread::Builder::new().name("ledger".into());
        thread.spawn(move || write_until_closed(&file, &shared, waiting)).map_err(|error| {
            fault("has no thread to write it", &error, "let the process start more threads")
        })?;
        Ok(Self { ids, writer, notice })
    }

    pub(super) async fn apply(&self, id: &str) -> Result<Applied, LedgerFault> {
        if id.len() > ID_BYTES_MAX {
            return Err(LedgerFault::LongId { bytes: id.len(), max: ID_BYTES_MAX });
        }
        let (reply, answer) = oneshot::channel();
        self.writer.send((id.to_owned(), reply)).await.map_err(|_| LedgerFault::Stopped)?;
        answer.await.unwrap_or(Err(LedgerFault::Stopped))
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&IdSet) -> T) -> T {
        look(&locked(&self.ids))
    }

    pub(super) fn notice(&self) -> Option<String> {
        self.notice.clone()
    }
}

/// Reads the ids of all complete lines and returns the offset of their end. Anything after it was never confirmed: a
/// line is confirmed only after the sync, and a synced line is complete.
fn read(file: &File) -> std::io::Result<(IdSet, u64)> {
    let (mut ids, mut good) = (IdSet::default(), 0);
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let bytes = std::io::Read::take(&mut lines, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        let whole = line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice::<String>(line).ok());
        let Some(id) = whole else { return Ok((ids, good)) };
        if ids.insert(&id) == Inserted::Full {
            return Err(std::io::Error::other("it holds more ids than a ledger may"));
        }
        good += bytes as u64;
    }
}

/// Truncates the file after the last complete line and seeks there; returns how many bytes were cut off.
fn cut_tail(file: &mut File, good_bytes: u64) -> std::io::Result<Option<u64>> {
    let bytes = file.metadata()?.len();
    if bytes > good_bytes {
        file.set_len(good_bytes)?;
        file.sync_all()?;
    }
    file.seek(SeekFrom::Start(good_bytes))?;
    Ok(Some(bytes - good_bytes).filter(|cut| *cut > 0))
}

/// A new file survives a power cut only if its directory was synced.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn write_until_closed(mut file: &File, ids: &Mutex<IdSet>, mut waiting: mpsc::Receiver<(String, Reply)>) {
    let mut batch = Vec::with_capacity(WAITING_MAX);
    while waiting.blocking_recv_many(&mut batch, WAITING_MAX) > 0 {
        let (text, fresh) = lines_of(&batch, &locked(ids));
        // After a failed write or sync the state of the disk is unknown, so the writer stops.
        if !text.is_empty() && file.write_all(&text).and_then(|()| file.sync_data()).is_err() {
            return;
        }
        let mut ids = locked(ids);
        for ((id, reply), fresh) in batch.drain(..).zip(fresh) {
            // The id is in the file but exceeds the bound: it is refused now, and by the next start, which reads it.
            let inserted = if fresh { ids.insert(&id) } else { Inserted::Known };
            let _ = reply.send(match inserted {
                Inserted::New => Ok(Applied::First),
                Inserted::Known => Ok(Applied::Again),
                Inserted::Full => Err(LedgerFault::Full),
            });
        }
    }
}

/// The lines to append for a batch, and which of its ids are new.
fn lines_of(batch: &[(String, Reply)], known: &IdSet) -> (Vec<u8>, Vec<bool>) {
    let (mut text, mut seen) = (Vec::new(), HashSet::new());
    let fresh = batch.iter().map(|(id, _)| {
        let fresh = !known.contains(id) && seen.insert(id.as_str());
        if fresh {
            // Writing a string into a vector cannot fail.
            let _ = serde_json::to_writer(&mut text, id);
            text.push(b'\n');
        }
        fresh
    });
    let fresh = fresh.collect();
    (text, fresh)
}
