//! The jobs that a process knows: its own, with their files, and those of other processes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::error::ReplayError;
use super::files::{Files, FoundJobs};
use super::job::{self, Facts, JobProgress, ReplayState, ReplayView};
use super::live::{Job, JobWriter, Listener, blocking};
use super::others::Others;
use super::records::{self, JobRecord};
use super::taken::TakenLetters;
use crate::naming::Naming;

/// Maximum jobs that are kept; beyond that the oldest finished ones are forgotten.
const KEPT_MAX: usize = 1_000;

/// The jobs that a process knows.
pub(super) struct JobBook {
    naming: Naming,
    files: Option<Files>,
    jobs: Mutex<BTreeMap<u64, Arc<Job>>>,
    others: Others,
    next: Mutex<u64>,
    /// Serializes starts, so that each job sees which letters the previous one took.
    starting: tokio::sync::Mutex<()>,
    faults: Vec<String>,
    listener: Listener,
}

impl JobBook {
    /// Reads the jobs in `dir`; without a directory they are kept in memory only.
    pub(super) fn open(dir: Option<&Path>, naming: Naming) -> io::Result<Self> {
        let (files, found) = match dir {
            Some(dir) => {
                let (files, found) = Files::open(dir)?;
                (Some(files), found)
            }
            None => (None, FoundJobs::default()),
        };
        let listener = Listener::default();
        let jobs = found.jobs.into_iter().map(|(facts, progress)| {
            let id = naming.name('r', facts.number);
            (facts.number, Arc::new(Job::new(id, facts, progress, Arc::clone(&listener))))
        });
        let jobs = Mutex::new(jobs.collect());
        let next = Mutex::new(found.highest + 1);
        let (others, starting) = (Others::default(), tokio::sync::Mutex::default());
        Ok(Self { naming, files, jobs, others, next, starting, faults: found.faults, listener })
    }

    /// Sets the listener. Later calls are ignored.
    pub(super) fn listen(&self, listener: Box<dyn Fn(&ReplayView) + Send + Sync>) {
        let _ = self.listener.set(listener);
    }

    /// Job files that could not be read, with the errors.
    pub(super) fn faults(&self) -> &[String] {
        &self.faults
    }

    pub(super) const fn naming(&self) -> &Naming {
        &self.naming
    }

    /// Jobs that were started by other processes.
    pub(super) const fn others(&self) -> &Others {
        &self.others
    }

    /// The name of this process in shared jobs.
    pub(super) fn runner(&self) -> String {
        self.naming.prefix('r')
    }

    /// The number of own jobs that are not over.
    pub(super) fn live(&self) -> usize {
        self.jobs().values().filter(|job| !job.progress().state.is_over()).count()
    }

    /// Own jobs of this pipeline that have work left.
    pub(super) fn unsettled(&self, pipeline: &str) -> Vec<Arc<Job>> {
        let jobs = self.jobs();
        let unsettled =
            jobs.values().filter(|job| job.facts.pipeline == pipeline && !job.progress().is_settled());
        unsettled.cloned().collect()
    }

    /// Of those, the ones that are neither shared nor have a task.
    pub(super) fn unshared(&self, pipeline: &str, is_shared: impl Fn(&str) -> bool) -> Vec<Arc<Job>> {
        let mut jobs = self.unsettled(pipeline);
        jobs.retain(|job| !job.is_attached() && !is_shared(&job.id));
        jobs
    }

    /// All known jobs, the latest first.
    pub(super) fn views(&self) -> Vec<ReplayView> {
        let mut views: Vec<ReplayView> = self.jobs().values().rev().map(|job| job.view()).collect();
        let others = self.others.views();
        if !others.is_empty() {
            views.extend(others);
            views.sort_by_key(|view| std::cmp::Reverse(view.created));
        }
        views
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<Job>, ReplayError> {
        let Some(number) = job::number(id) else { return Err(ReplayError::NotFound(id.to_owned())) };
        if let Some(job) = self.jobs().get(&number).filter(|job| job.id == id) {
            return Ok(Arc::clone(job));
        }
        if let Some(job) = self.others.get(id) {
            return Ok(job);
        }
        let ours = self.naming.prefix('r');
        if self.naming.name('r', number) == id {
            return Err(ReplayError::NotFound(id.to_owned()));
        }
        Err(ReplayError::Elsewhere { id: id.to_owned(), ours })
    }

    /// The job that a shared record describes.
    pub(super) fn known(&self, record: &JobRecord) -> Arc<Job> {
        let own = self.jobs().get(&record.facts.number).filter(|job| job.id == record.id).cloned();
        own.unwrap_or_else(|| self.others.known(record, &self.listener))
    }

    /// Blocks other starts while the guard lives.
    pub(super) async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.starting.lock().await
    }

    /// Letters of a pipeline that jobs still have to put back. `shared` are the records of all processes that share
    /// it.
    pub(super) async fn taken(&self, pipeline: &str, shared: &[(String, Bytes)]) -> TakenLetters {
        let mut taken = TakenLetters::default();
        let elsewhere = records::jobs_in(shared);
        let own = self.unsettled(pipeline);
        for job in own.iter().filter(|job| job.progress().state.holds_letters()) {
            let ids = match job.selection() {
                Some(ids) => ids,
                // Another process runs it.
                None if elsewhere.iter().any(|record| record.id == job.id) => continue,
                // No task has taken it up yet. If its selection cannot be read, it will put nothing back.
                None => self.read_ids(job).await.unwrap_or_default().into(),
            };
            let offered = (job.progress().offered as usize).min(ids.len());
            taken.add(&job.id, &ids[offered..]);
        }
        for record in elsewhere.iter().filter(|record| record.progress.state.holds_letters()) {
            let runs_here = own.iter().any(|job| job.id == record.id && job.selection().is_some());
            if !runs_here {
                taken.add(&record.id, &records::left_of(shared, record).unwrap_or_default());
            }
        }
        taken
    }

    /// The number of the next job of this process.
    pub(super) fn next_number(&self) -> u64 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        *next - 1
    }

    /// Writes down a job that is about to start here, with its selection. Nobody sees it before [`Self::add`], but after a
    /// crash it goes on.
    pub(super) async fn write_new(
        &self,
        facts: Facts,
        progress: JobProgress,
        ids: Vec<u64>,
    ) -> io::Result<(Arc<Job>, Arc<[u64]>)> {
        let number = facts.number;
        let id = self.naming.name('r', number);
        let job = Arc::new(Job::new(id, facts, progress, Arc::clone(&self.listener)));
        let ids = job.select(ids);
        if let Some(files) = self.files.clone() {
            let (job, ids) = (Arc::clone(&job), Arc::clone(&ids));
            blocking(move || {
                files.write_ids(number, &ids)?;
                files.write(&job.facts, &job.progress())
            })
            .await?;
        }
        Ok((job, ids))
    }

    /// Adds a job that was written down; a task is at work on it from now on.
    pub(super) fn add(&self, job: &Arc<Job>) {
        job.attach();
        self.jobs().insert(job.facts.number, Arc::clone(job));
    }

    /// Removes a job that could not be recorded or shared. If its file cannot be removed, it goes on after a restart.
    pub(super) async fn withdraw(&self, job: &Job) {
        let number = job.facts.number;
        self.jobs().remove(&number);
        if let Some(files) = self.files.clone() {
            let _ = blocking(move || files.forget(number)).await;
        }
    }

    /// Changes the state of a job that runs here. Durable when it returns.
    pub(super) async fn set(&self, job: &Arc<Job>, state: ReplayState) -> Result<ReplayView, ReplayError> {
        let was = job.change(|progress| {
            let was = progress.state;
            match (was, state) {
                (was, _) if was.is_over() => {}
                // It is not running anyway, and the reason for the stop is worth keeping.
                (ReplayState::Stopped, ReplayState::Paused) => {}
                (ReplayState::Stopped, ReplayState::Running) => {
                    progress.state = state;
                    progress.note = None;
                    progress.begin_trial(&job.facts.spec);
                }
                _ => progress.state = state,
            }
            was
        });
        if was.is_over() {
            return Err(ReplayError::Over { id: job.id.clone(), state: was });
        }
        job.changed.notify_one();
        self.keep_of(job).try_write(job).await?;
        Ok(job.view())
    }

    /// The selection of a job that was started here, from its file.
    pub(super) async fn read_ids(&self, job: &Job) -> Result<Vec<u64>, String> {
        if !self.started_here(job) {
            return Err("its selection is not known here".to_owned());
        }
        let Some(files) = self.files.clone() else {
            return Err("its selection was kept in memory only".to_owned());
        };
        let facts = job.facts.clone();
        blocking(move || Ok(files.read_ids(&facts))).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Writes the progress of a job to its file on this machine, if it has one.
    pub(super) fn keep_of(&self, job: &Job) -> JobWriter {
        JobWriter { files: self.files.clone().filter(|_| self.started_here(job)) }
    }

    /// Forgets the oldest finished own jobs beyond the limit.
    pub(super) async fn forget_oldest(&self) {
        let surplus: Vec<u64> = {
            let mut jobs = self.jobs();
            let surplus = jobs.len().saturating_sub(KEPT_MAX);
            let over = jobs.values().filter(|job| job.progress().state.is_over()).take(surplus);
            let over: Vec<u64> = over.map(|job| job.facts.number).collect();
            over.iter().for_each(|number| drop(jobs.remove(number)));
            over
        };
        if let Some(files) = self.files.clone().filter(|_| !surplus.is_empty()) {
            // A file that cannot be removed is found again at the next start, and removed then.
            let _ = blocking(move || surplus.iter().try_for_each(|number| files.forget(*number))).await;
        }
    }

    fn started_here(&self, job: &Job) -> bool {
        self.naming.name('r', job.facts.number) == job.id
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
