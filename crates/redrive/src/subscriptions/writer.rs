//! The thread that makes changes durable. Changes that arrive during a write are combined into the next one.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::entry::Entry;
use super::store::SubscriptionStore;
use super::table::Table;
use crate::engine::EngineError;

/// Changes that may wait to be written; further callers wait.
const WAITING_MAX: usize = 1024;
/// Entries of one write.
const BATCH_MAX: usize = 4096;
/// Outdated entries that a store may hold in addition to as many as are current.
const OUTDATED_FREE: u64 = 10_000;

pub(super) struct WriteJob {
    entries: Vec<Entry>,
    done: oneshot::Sender<Result<(), EngineError>>,
}

/// Passes entries to the thread. Dropping it ends the thread, after everything passed on was written.
#[derive(Debug)]
pub(super) struct Writer {
    sender: Option<mpsc::Sender<WriteJob>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        pipeline: &str,
        store: Box<dyn SubscriptionStore>,
        table: &Arc<Mutex<Table>>,
    ) -> Result<Self, EngineError> {
        let (sender, jobs) = mpsc::channel(WAITING_MAX);
        let table = Arc::clone(table);
        let name = format!("subs-{pipeline}");
        let thread = std::thread::Builder::new().name(name).spawn(move || write_all(store, jobs, &table));
        let thread = thread.map_err(|error| EngineError::Storage(error.to_string()))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    pub(super) fn sender(&self) -> Option<mpsc::Sender<WriteJob>> {
        self.sender.clone()
    }
}

/// Writes entries; durable on return.
pub(super) async fn write(sender: mpsc::Sender<WriteJob>, entries: Vec<Entry>) -> Result<(), EngineError> {
    let ended = || EngineError::Storage("the subscriptions are closed".to_owned());
    let (done, written) = oneshot::channel();
    sender.send(WriteJob { entries, done }).await.map_err(|_| ended())?;
    written.await.map_err(|_| ended())?
}

fn write_all(
    mut store: Box<dyn SubscriptionStore>,
    mut jobs: mpsc::Receiver<WriteJob>,
    table: &Mutex<Table>,
) {
    while let Some(first) = jobs.blocking_recv() {
        let mut batch = vec![first];
        let mut entries = std::mem::take(&mut batch[0].entries);
        while entries.len() < BATCH_MAX
            && let Ok(mut job) = jobs.try_recv()
        {
            entries.append(&mut job.entries);
            batch.push(job);
        }
        let mut written = store.append(&entries);
        if written.is_ok() {
            written = compact(&mut *store, table);
        }
        for job in batch {
            // The caller may be gone.
            let _ = job.done.send(written.clone());
        }
    }
}

/// Compacts the store if it has too many outdated entries. The table may be newer than what was written, but newer
/// changes are appended again afterwards, so they still count.
pub(super) fn compact(store: &mut dyn SubscriptionStore, table: &Mutex<Table>) -> Result<(), EngineError> {
    let snapshot = {
        let table = table.lock().unwrap_or_else(PoisonError::into_inner);
        if store.len() <= 2 * table.len() as u64 + OUTDATED_FREE {
            return Ok(());
        }
        table.snapshot()
    };
    store.replace(&mut snapshot.into_iter())
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has already been printed.
            let _ = thread.join();
        }
    }
}
