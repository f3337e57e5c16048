//! One job in memory, and writing it to disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;

use super::files::Files;
use super::job::{self, Facts, JobProgress, ReplayView};

/// One known job.
pub(super) struct Job {
    /// Its name.
    pub(super) id: String,
    pub(super) facts: Facts,
    progress: Mutex<JobProgress>,
    /// Its letters in replay order, while a task works on it.
    selection: Mutex<Option<Arc<[u64]>>>,
    /// Notified when its state changes.
    pub(super) changed: Notify,
    /// Whether a task works on it.
    attached: AtomicBool,
    /// Whether another process runs it.
    elsewhere: AtomicBool,
    /// Serializes writes, each of the latest progress.
    writing: tokio::sync::Mutex<()>,
    listener: Listener,
}

/// Called for every state change of a job.
pub(super) type Listener = Arc<OnceLock<Box<dyn Fn(&ReplayView) + Send + Sync>>>;

impl Job {
    pub(super) fn new(id: String, facts: Facts, progress: JobProgress, listener: Listener) -> Self {
        Self {
            id,
            facts,
            progress: Mutex::new(progress),
            selection: Mutex::default(),
            changed: Notify::new(),
            attached: AtomicBool::new(false),
            elsewhere: AtomicBool::new(false),
            writing: tokio::sync::Mutex::new(()),
            listener,
        }
    }

    pub(super) fn progress(&self) -> JobProgress {
        self.lock().clone()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut JobProgress) -> T) -> T {
        let (changed, is_new_state) = {
            let mut progress = self.lock();
            let before = progress.state;
            let changed = change(&mut progress);
            (changed, progress.state != before)
        };
        if is_new_state {
            self.tell();
        }
        changed
    }

    /// Reports its state to the listener.
    pub(super) fn tell(&self) {
        if let Some(listener) = self.listener.get() {
            listener(&self.view());
        }
    }

    /// Marks the job as having a task; `false` if it has one already.
    pub(super) fn attach(&self) -> bool {
        !self.attached.swap(true, Ordering::SeqCst)
    }

    /// Sets its letters, for the task and for queries about what is left.
    pub(super) fn select(&self, ids: Vec<u64>) -> Arc<[u64]> {
        let ids: Arc<[u64]> = ids.into();
        *self.selection.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&ids));
        ids
    }

    pub(super) fn selection(&self) -> Option<Arc<[u64]>> {
        self.selection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its task has ended; another one may take the job up.
    pub(super) fn detach(&self) {
        *self.selection.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.attached.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::SeqCst)
    }

    /// Another process runs the job now, so a task for it in this process ends.
    pub(super) fn leave_to_others(&self) {
        if !self.elsewhere.swap(true, Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    pub(super) fn run_here(&self) {
        self.elsewhere.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::SeqCst)
    }

    pub(super) fn view(&self) -> ReplayView {
        job::view(self.id.clone(), &self.facts, &self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, JobProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes jobs to disk, if there is a directory.
#[derive(Clone)]
pub(super) struct JobWriter {
    pub(super) files: Option<Files>,
}

impl JobWriter {
    /// Writes the current progress. A task continues even if that fails, because the letters themselves record what
    /// was done.
    pub(super) async fn write(&self, job: &Arc<Job>) {
        if let Err(error) = self.try_write(job).await {
            job.change(|progress| progress.note = Some(format!("its progress cannot be stored: {error}")));
        }
    }

    pub(super) async fn try_write(&self, job: &Arc<Job>) -> std::io::Result<()> {
        let Some(files) = self.files.clone() else { return Ok(()) };
        let _alone = job.writing.lock().await;
        let (job, progress) = (Arc::clone(job), job.progress());
        blocking(move || {
            files.write(&job.facts, &progress)?;
            if progress.is_settled() { files.forget_ids(job.facts.number) } else { Ok(()) }
        })
        .await
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
