//! All replay jobs of a process: durable objects named `r-1`, `r-2` …, each with a task while it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::Time;
use tokio::runtime::Handle;

use super::files::{Files, checksum};
use super::group::{self, Follower};
use super::job::{self, Facts, JobProgress, ReplaySpec, ReplayState, ReplayView};
use super::live::{Job, Keep, Listener, blocking};
use super::others::Others;
use super::pace::RATE_MAX;
use super::plan::Plan;
use super::records::JobRecord;
use super::run::Task;
use crate::engine::ReplayTarget;
use crate::handle::PipelineHandle;
use crate::letters::select::SELECTION_MAX;
use crate::naming::Naming;

/// Jobs that run, are paused or stopped at the same time.
pub const LIVE_MAX: usize = 64;
/// Jobs that are remembered; beyond it the oldest that are over are forgotten.
pub const KEPT_MAX: usize = 1_000;
/// Keeps the jobs of [`Replays`] apart from those of [`PipelineHandle::replay`], which count milliseconds.
const JOB_BIT: u64 = 1 << 62;
/// Longer words about a job are cut: they are for people, and its file must stay readable.
const WORDS_BYTES_MAX: usize = 4096;

/// The replay jobs of a process. Clones are handles to the same jobs.
#[derive(Clone)]
pub struct Replays {
    shared: Arc<SharedJobs>,
}

struct SharedJobs {
    naming: Naming,
    files: Option<Files>,
    jobs: Mutex<BTreeMap<u64, Arc<Job>>>,
    others: Others,
    next: Mutex<u64>,
    faults: Vec<String>,
    listener: Listener,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("no letter is selected, so there is nothing to replay")]
    Nothing,
    #[error("more than {SELECTION_MAX} letters are selected; narrow the selection down")]
    TooMany,
    #[error("`rate` is {0} letters per second, and has to be above 0 and at most {RATE_MAX}")]
    Rate(f64),
    #[error(
        "letters of `{0}` did not come from a topic, so they cannot be put back onto one; leave the target out"
    )]
    NoSource(String),
    #[error("{LIVE_MAX} replays run, are paused or were stopped; wait for one of them, or abort one")]
    TooManyJobs,
    #[error("there is no replay `{0}`")]
    NotFound(String),
    #[error(
        "replay `{id}` is not of this process, whose replays are called `{ours}…`; ask the one that started it"
    )]
    Elsewhere { id: String, ours: String },
    #[error(
        "replay `{id}` runs in another process, which has not answered; it is done as soon as that process, or another that takes the job over, reads it"
    )]
    Unanswered { id: String },
    #[error("replay `{id}` is {state} and cannot be changed any more")]
    Over { id: String, state: ReplayState },
    #[error("replays need a tokio runtime; call this from within one")]
    NoRuntime,
    #[error("the replay job could not be stored: {0}")]
    Storage(#[from] std::io::Error),
}

impl ReplayError {
    /// What is wrong with a pace, if anything is. A dry run asks for it too.
    pub fn check_rate(rate: Option<f64>) -> Result<(), Self> {
        match rate {
            Some(rate) if !(rate > 0.0 && rate <= RATE_MAX) => Err(Self::Rate(rate)),
            _ => Ok(()),
        }
    }
}

/// The name of a job towards the engine, which no other process gives to another.
fn engine_job(created: Time, salt: u64, number: u64) -> u64 {
    JOB_BIT | (created.as_millis() << 20 & (JOB_BIT - 1)) | (salt & 1023) << 10 | (number & 1023)
}

fn cut(words: &str) -> String {
    words[..words.floor_char_boundary(WORDS_BYTES_MAX)].to_owned()
}

impl Replays {
    /// Reads the jobs in `dir`, or keeps them in memory only. Running jobs go on when their pipelines are attached.
    pub fn open(dir: Option<&Path>) -> Result<Self, ReplayError> {
        Self::open_named(dir, Naming::default())
    }

    /// The same, for a process that shares its letters with others: its jobs have names of their own.
    pub fn open_named(dir: Option<&Path>, naming: Naming) -> Result<Self, ReplayError> {
        let (files, found) = match dir {
            Some(dir) => {
                let (files, found) = Files::open(dir)?;
                (Some(files), found)
            }
            None => (None, super::files::FoundJobs::default()),
        };
        let listener = Listener::default();
        let jobs = found.jobs.into_iter().map(|(facts, progress)| {
            let id = naming.name('r', facts.number);
            (facts.number, Arc::new(Job::new(id, facts, progress, Arc::clone(&listener))))
        });
        let jobs = Mutex::new(jobs.collect());
        let next = Mutex::new(found.highest + 1);
        let shared = SharedJobs {
            naming,
            files,
            jobs,
            others: Others::default(),
            next,
            faults: found.faults,
            listener,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Hears when a job begins and whenever its state changes. Only the first listener counts; it must not block.
    pub fn on_change(&self, listener: impl Fn(&ReplayView) + Send + Sync + 'static) {
        let _ = self.shared.listener.set(Box::new(listener));
    }

    /// Job files that could not be read, with why. Their jobs do not run.
    pub fn faults(&self) -> &[String] {
        &self.shared.faults
    }

    /// Takes up the jobs of this pipeline: after a restart, a running job goes on from here. Returns the ids of those that
    /// are not over. What an aborted one had put back is counted to its end.
    pub fn attach(&self, handle: &PipelineHandle) -> Result<Vec<String>, ReplayError> {
        let runtime = Handle::try_current().map_err(|_| ReplayError::NoRuntime)?;
        if let Some(jobs) = handle.shared_jobs() {
            // Which jobs this process runs is known once what the others wrote is read.
            if self.shared.others.share(handle.name(), Arc::clone(&jobs)) {
                runtime.spawn(Follower::new(self.clone(), handle.clone(), jobs).run());
            }
            return Ok(Vec::new());
        }
        let of_pipeline =
            |job: &&Arc<Job>| job.facts.pipeline == handle.name() && !job.progress().is_settled();
        let jobs: Vec<Arc<Job>> = self.jobs().values().filter(of_pipeline).cloned().collect();
        let mut taken_up = Vec::new();
        for job in jobs {
            if !job.attach() {
                continue;
            }
            if !job.progress().state.is_over() {
                taken_up.push(job.id.clone());
            }
            let (keep, handle) = (self.keep(), handle.clone());
            let files = self.shared.files.clone();
            runtime.spawn(async move {
                let facts = job.facts.clone();
                let read = match files {
                    Some(files) => blocking(move || Ok(files.read_ids(&facts))).await,
                    None => Ok(Err("its selection was kept in memory only".to_owned())),
                };
                match read.unwrap_or_else(|error| Err(error.to_string())) {
                    Ok(ids) => Task { job, keep, handle, ids, is_resumed: true }.run().await,
                    Err(why) => {
                        job.change(|progress| {
                            // One that was aborted by an earlier version has no selection any more.
                            if !progress.state.is_over() {
                                progress.state = ReplayState::Failed;
                                progress.note = Some(why);
                            }
                        });
                        keep.write(&job).await;
                        job.detach();
                    }
                }
            });
        }
        Ok(taken_up)
    }

    /// Starts a job over letters that were chosen before, in their order. It is durable when this returns.
    pub async fn start(
        &self,
        handle: &PipelineHandle,
        spec: ReplaySpec,
        ids: impl Into<Vec<u64>>,
        actor: &str,
    ) -> Result<ReplayView, ReplayError> {
        let mut ids: Vec<u64> = ids.into();
        ids.sort_unstable();
        ids.dedup();
        self.start_planned(handle, spec, Plan { ids, ..Plan::default() }, actor).await
    }

    /// Starts a job as it was planned. It is durable when this returns.
    pub async fn start_planned(
        &self,
        handle: &PipelineHandle,
        spec: ReplaySpec,
        plan: Plan,
        actor: &str,
    ) -> Result<ReplayView, ReplayError> {
        let Plan { mut ids, tenants, .. } = plan;
        if ids.is_empty() {
            return Err(ReplayError::Nothing);
        }
        if ids.len() > SELECTION_MAX {
            return Err(ReplayError::TooMany);
        }
        ReplayError::check_rate(spec.rate)?;
        if spec.target == ReplayTarget::Source && handle.takes_messages() {
            return Err(ReplayError::NoSource(handle.name().to_owned()));
        }
        let runtime = Handle::try_current().map_err(|_| ReplayError::NoRuntime)?;
        if self.jobs().values().filter(|job| !job.progress().state.is_over()).count() >= LIVE_MAX {
            return Err(ReplayError::TooManyJobs);
        }
        let spec = ReplaySpec { selection: cut(&spec.selection), ..spec };
        let number = self.number();
        let created = handle.now();
        let facts = Facts {
            number,
            engine_job: engine_job(created, self.shared.naming.salt(), number),
            pipeline: handle.name().to_owned(),
            spec,
            total: ids.len() as u64,
            tenants,
            ids_crc: checksum(&ids),
            created,
            actor: cut(actor),
        };
        let id = self.shared.naming.name('r', number);
        let mut progress = JobProgress::new();
        progress.begin_trial(&facts.spec);
        let job = Arc::new(Job::new(id, facts, progress, Arc::clone(&self.shared.listener)));
        if let Some(files) = self.shared.files.clone() {
            let job = Arc::clone(&job);
            ids = blocking(move || {
                files.write_ids(number, &ids)?;
                files.write(&job.facts, &job.progress())?;
                Ok(ids)
            })
            .await?;
        }
        job.attach();
        self.jobs().insert(number, Arc::clone(&job));
        if let Some(jobs) = handle.shared_jobs()
            && let Err(error) = group::share(&jobs, self.runner(), &job, &ids).await
        {
            self.jobs().remove(&number);
            if let Some(files) = self.shared.files.clone() {
                // One that cannot be removed would go on after a restart; that it could not be stored was said.
                let _ = blocking(move || files.forget(number)).await;
            }
            return Err(error.into());
        }
        self.forget_oldest().await;
        let view = job.view();
        job.tell();
        let task = Task { job, keep: self.keep(), handle: handle.clone(), ids, is_resumed: false };
        runtime.spawn(task.run());
        Ok(view)
    }

    /// All jobs that are remembered, the latest first.
    pub fn list(&self) -> Vec<ReplayView> {
        let mut views: Vec<ReplayView> = self.jobs().values().rev().map(|job| job.view()).collect();
        let others = self.shared.others.views();
        if !others.is_empty() {
            views.extend(others);
            views.sort_by_key(|view| std::cmp::Reverse(view.created));
        }
        views
    }

    pub fn get(&self, id: &str) -> Option<ReplayView> {
        self.try_get(id).ok()
    }

    /// The same, or why there is none.
    pub fn try_get(&self, id: &str) -> Result<ReplayView, ReplayError> {
        Ok(self.find(id)?.view())
    }

    /// Puts nothing back until it is resumed. What was put back goes on.
    pub async fn pause(&self, id: &str) -> Result<ReplayView, ReplayError> {
        self.set(id, ReplayState::Paused).await
    }

    /// Goes on with a job that was paused, or was stopped because too many letters died again; after that it begins with
    /// another canary.
    pub async fn resume(&self, id: &str) -> Result<ReplayView, ReplayError> {
        self.set(id, ReplayState::Running).await
    }

    /// Ends it. What was put back goes on and is still counted.
    pub async fn abort(&self, id: &str) -> Result<ReplayView, ReplayError> {
        self.set(id, ReplayState::Aborted).await
    }

    /// Durable when it returns.
    pub(super) async fn set(&self, id: &str, state: ReplayState) -> Result<ReplayView, ReplayError> {
        let job = self.find(id)?;
        match job.progress().state {
            was if was.is_over() || !job.is_elsewhere() => {}
            // It stands still already.
            ReplayState::Stopped if state == ReplayState::Paused => return Ok(job.view()),
            _ => {
                let unanswered = || ReplayError::Unanswered { id: job.id.clone() };
                let jobs = self.shared.others.group(&job.facts.pipeline).ok_or_else(unanswered)?;
                return group::ask_runner(&jobs, &job, state).await?.ok_or_else(unanswered);
            }
        }
        let was = job.change(|progress| {
            let was = progress.state;
            match (was, state) {
                (was, _) if was.is_over() => {}
                // It stands still already, and why is worth more.
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
            return Err(ReplayError::Over { id: id.to_owned(), state: was });
        }
        job.changed.notify_one();
        self.keep_of(&job).try_write(&job).await?;
        Ok(job.view())
    }

    fn find(&self, id: &str) -> Result<Arc<Job>, ReplayError> {
        let Some(number) = job::number(id) else { return Err(ReplayError::NotFound(id.to_owned())) };
        if let Some(job) = self.jobs().get(&number).filter(|job| job.id == id) {
            return Ok(Arc::clone(job));
        }
        if let Some(job) = self.shared.others.get(id) {
            return Ok(job);
        }
        let ours = self.shared.naming.prefix('r');
        if self.shared.naming.name('r', number) == id {
            return Err(ReplayError::NotFound(id.to_owned()));
        }
        Err(ReplayError::Elsewhere { id: id.to_owned(), ours })
    }

    /// What this process is called where jobs are shared.
    pub(super) fn runner(&self) -> String {
        self.shared.naming.prefix('r')
    }

    /// The job that a record of the group is about.
    pub(super) fn known(&self, record: &JobRecord) -> Arc<Job> {
        let own = self.jobs().get(&record.facts.number).filter(|job| job.id == record.id).cloned();
        own.unwrap_or_else(|| self.shared.others.known(record, &self.shared.listener))
    }

    /// Forgets jobs of others that the group has forgotten.
    pub(super) fn retain_others(&self, pipeline: &str, is_known: impl Fn(&str) -> bool) {
        self.shared.others.retain(pipeline, is_known);
    }

    /// Jobs of this pipeline that have work left, are not shared, and that nothing is at work on.
    pub(super) fn unshared(&self, pipeline: &str, is_shared: impl Fn(&str) -> bool) -> Vec<Arc<Job>> {
        let jobs = self.jobs();
        let unshared = jobs.values().filter(|job| {
            let has_work = !job.progress().is_settled() && !job.is_attached();
            job.facts.pipeline == pipeline && has_work && !is_shared(&job.id)
        });
        unshared.cloned().collect()
    }

    /// The selection of a job that was started here, from its file.
    pub(super) async fn read_ids(&self, job: &Job) -> Result<Vec<u64>, String> {
        let files = self.shared.files.clone().filter(|_| self.started_here(job));
        let Some(files) = files else { return Err("its selection is not known here".to_owned()) };
        let facts = job.facts.clone();
        blocking(move || Ok(files.read_ids(&facts))).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Where the progress of a job is written on this machine.
    pub(super) fn keep_of(&self, job: &Job) -> Keep {
        Keep { files: self.shared.files.clone().filter(|_| self.started_here(job)) }
    }

    fn started_here(&self, job: &Job) -> bool {
        self.shared.naming.name('r', job.facts.number) == job.id
    }

    fn keep(&self) -> Keep {
        Keep { files: self.shared.files.clone() }
    }

    fn number(&self) -> u64 {
        let mut next = self.shared.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        *next - 1
    }

    async fn forget_oldest(&self) {
        let surplus: Vec<u64> = {
            let mut jobs = self.jobs();
            let surplus = jobs.len().saturating_sub(KEPT_MAX);
            let over = jobs.values().filter(|job| job.progress().state.is_over()).take(surplus);
            let over: Vec<u64> = over.map(|job| job.facts.number).collect();
            over.iter().for_each(|number| drop(jobs.remove(number)));
            over
        };
        if let Some(files) = self.shared.files.clone().filter(|_| !surplus.is_empty()) {
            // One that cannot be removed is found again at the next start, and goes then.
            let _ = blocking(move || surplus.iter().try_for_each(|number| files.forget(*number))).await;
        }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Job>>> {
        self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replays").field("jobs", &self.jobs().len()).finish_non_exhaustive()
    }
}
