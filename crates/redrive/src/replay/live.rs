//! One job while it is known, and how it is written down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;

use super::files::Files;
use super::job::{self, Facts, JobProgress, ReplayView};

/// One job while it is known.
pub(super) struct Job {
    /// What it is called.
    pub(super) id: String,
    pub(super) facts: Facts,
    progress: Mutex<JobProgress>,
    /// Its letters in the order they go, while a task is at work on it.
    selection: Mutex<Option<Arc<[u64]>>>,
    /// Its state was changed.
    pub(super) changed: Notify,
    /// Whether a task is at work on it.
    attached: AtomicBool,
    /// Whether another process runs it.
    elsewhere: AtomicBool,
    /// One write at a time, each of the latest progress.
    writing: tokio::sync::Mutex<()>,
    listener: Listener,
}

/// Hears of every new state of a job.
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

    /// Reports its progress to listeners.
    pub(super) fn tell(&self) {
        if let Some(listener) = self.listener.get() {
            listener(&self.view());
        }
    }

    /// Takes the job up; `false` if a task is at work on it already.
    pub(super) fn attach(&self) -> bool {
        !self.attached.swap(true, Ordering::SeqCst)
    }

    /// Its letters, for the task that works on it and for questions about which are left.
    pub(super) fn select(&self, ids: Vec<u64>) -> Arc<[u64]> {
        let ids: Arc<[u64]> = ids.into();
        *self.selection.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&ids));
        ids
    }

    pub(super) fn selection(&self) -> Option<Arc<[u64]>> {
        self.selection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its task has ended; another may take it up.
    pub(super) fn detach(&self) {
        *self.selection.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.attached.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_attached(&self) -> bool {
        self.attached.load(Ordering::SeqCst)
    }

    /// Another process runs it now: a task that is at work on it here ends.
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

/// Writes jobs down, where there is a directory for it.
#[derive(Clone)]
pub(super) struct JobWriter {
    pub(super) files: Option<Files>,
}

impl JobWriter {
    /// Writes the job as it is now. A task that cannot write goes on: the letters themselves say what was done.
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
