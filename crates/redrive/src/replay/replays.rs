//! All replay jobs of a process: durable objects named `r-1`, `r-2` …, each with a task while it runs.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use redrive_core::Time;
use tokio::runtime::Handle;

use super::book::JobBook;
use super::error::ReplayError;
use super::files::checksum;
use super::group::{self, Follower};
use super::job::{Facts, JobProgress, LIVE_MAX, ReplaySpec, ReplayState, ReplayView};
use super::live::Job;
use super::plan::{Plan, PlanOptions};
use super::records;
use super::run::Task;
use super::taken::{TakenCounts, TakenLetters};
use crate::actions::{Action, ActionError, ActionKind, Actions};
use crate::engine::ReplayTarget;
use crate::handle::PipelineHandle;
use crate::letters::select::{SELECTION_MAX, SelectError, Selection};
use crate::naming::Naming;

/// Distinguishes the jobs of [`Replays`] from those of [`PipelineHandle::replay`], whose ids are derived from the
/// time.
const JOB_BIT: u64 = 1 << 62;
/// Longer descriptions of a job are cut, so that its file stays readable.
const WORDS_BYTES_MAX: usize = 4096;

/// The replay jobs of a process. Clones are handles to the same jobs.
///
/// ```
/// use redrive::letters::Selection;
/// use redrive::replay::{ReplaySpec, Replays};
/// use redrive::{LetterState, PipelineHandle};
///
/// async fn replay_all(orders: &PipelineHandle) -> Result<(), Box<dyn std::error::Error>> {
///     let replays = Replays::open(None)?; // in memory; with a directory, jobs go on after a restart
///     let ids = Selection::all(LetterState::Open).freeze(orders).await?;
///     let stop_at = Some("20%".parse()?);
///     let spec = ReplaySpec { rate: Some(50.0), canary: 10, stop_at, ..ReplaySpec::default() };
///     let job = replays.start(orders, spec, ids, "alice").await?;
///     println!("{} is {:?}", job.id, job.state);
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Replays {
    jobs: Arc<JobBook>,
}

/// The engine's id of a job, unique among all processes.
fn engine_job(created: Time, salt: u64, number: u64) -> u64 {
    JOB_BIT | (created.as_millis() << 20 & (JOB_BIT - 1)) | (salt & 1023) << 10 | (number & 1023)
}

/// What the log of actions says of its start.
fn start_of(job: &Job) -> Action {
    let Facts { created, actor, pipeline, spec, total, .. } = &job.facts;
    let action = Action::new(*created, actor, ActionKind::Replay, pipeline);
    action.of(job.id.clone(), *total).note(&spec.selection)
}

fn cut(words: &str) -> String {
    words[..words.floor_char_boundary(WORDS_BYTES_MAX)].to_owned()
}

impl Replays {
    /// Reads the jobs in `dir`; without a directory they are kept in memory only. Running jobs continue when their
    /// pipelines are attached.
    pub fn open(dir: Option<&Path>) -> Result<Self, ReplayError> {
        Self::open_named(dir, Naming::default())
    }

    /// Like [`Self::open`], for a process that shares its letters with others: the names of its jobs are unique among
    /// them.
    pub fn open_named(dir: Option<&Path>, naming: Naming) -> Result<Self, ReplayError> {
        Ok(Self { jobs: Arc::new(JobBook::open(dir, naming)?) })
    }

    /// The name of this process, which is the prefix of its job names.
    pub(super) fn runner(&self) -> String {
        self.jobs.runner()
    }

    /// Sets a listener for the start and every state change of a job. Only the first listener is used; it must not
    /// block.
    pub fn on_change(&self, listener: impl Fn(&ReplayView) + Send + Sync + 'static) {
        self.jobs.listen(Box::new(listener));
    }

    /// Job files that could not be read, with the errors. Their jobs do not run.
    pub fn faults(&self) -> &[String] {
        self.jobs.faults()
    }

    /// Takes up the jobs of this pipeline: after a restart, a running job continues. Returns the ids of those that
    /// are not over. Letters that an aborted job had put back are counted until they end.
    pub fn attach(&self, handle: &PipelineHandle) -> Result<Vec<String>, ReplayError> {
        let runtime = Handle::try_current().map_err(|_| ReplayError::NoRuntime)?;
        if let Some(jobs) = handle.shared_records() {
            // The follower determines the jobs of this process after reading the shared records.
            if self.jobs.others().share(handle.name(), Arc::clone(&jobs)) {
                runtime.spawn(Follower::new(Arc::clone(&self.jobs), handle.clone(), jobs).run());
            }
            return Ok(Vec::new());
        }
        let mut taken_up = Vec::new();
        for job in self.jobs.unsettled(handle.name()) {
            if !job.attach() {
                continue;
            }
            if !job.progress().state.is_over() {
                taken_up.push(job.id.clone());
            }
            let (keep, handle, book) = (self.jobs.keep_of(&job), handle.clone(), Arc::clone(&self.jobs));
            runtime.spawn(async move {
                match book.read_ids(&job).await {
                    Ok(ids) => {
                        let ids = job.select(ids);
                        Task { job, keep, handle, ids, is_resumed: true }.run().await;
                    }
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

    /// Starts a job for letters that were selected before, in the order of their ids. It is durable when this
    /// returns.
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

    /// Plans a replay. Letters taken by a job that is not over are excluded and counted.
    pub async fn plan(
        &self,
        handle: &PipelineHandle,
        selection: &Selection,
        options: PlanOptions,
    ) -> Result<Plan, SelectError> {
        Plan::make_beside(handle, selection, options, &self.taken(handle).await).await
    }

    /// How many of these letters jobs have still to put back, by job.
    #[doc(hidden)]
    pub async fn taken_of(&self, handle: &PipelineHandle, ids: &[u64]) -> TakenCounts {
        let mut counts = TakenCounts::default();
        self.taken(handle).await.remove_from(&mut ids.to_vec(), &mut counts);
        counts
    }

    /// Letters of a pipeline that jobs have still to put back, in any process that shares them.
    pub(crate) async fn taken(&self, handle: &PipelineHandle) -> TakenLetters {
        let shared = handle.shared_records().map(|jobs| jobs.records(records::PREFIX)).unwrap_or_default();
        self.jobs.taken(handle.name(), &shared).await
    }

    /// Starts a job as it was planned, without letters that another job has taken since. It is durable when this returns,
    /// and it starts also if nobody waits for that.
    pub async fn start_planned(
        &self,
        handle: &PipelineHandle,
        spec: ReplaySpec,
        plan: Plan,
        actor: &str,
    ) -> Result<ReplayView, ReplayError> {
        self.start_recorded(handle, spec, plan, actor, |_| async { Ok(()) }).await
    }

    /// The same with a line in the log of actions, which `record` gets as it is. It is written when the job is on disk and
    /// before the first letter goes: a job that cannot be recorded does not start, and one whose process ends in between
    /// is found by [`Self::record_missing`].
    #[doc(hidden)]
    pub async fn start_recorded<F>(
        &self,
        handle: &PipelineHandle,
        spec: ReplaySpec,
        plan: Plan,
        actor: &str,
        record: impl FnMut(Action) -> F + Send + 'static,
    ) -> Result<ReplayView, ReplayError>
    where
        F: Future<Output = Result<(), ActionError>> + Send,
    {
        let runtime = Handle::try_current().map_err(|_| ReplayError::NoRuntime)?;
        let (replays, handle, actor) = (self.clone(), handle.clone(), cut(actor));
        // In a task of its own: dropped halfway, it would leave a job on disk of which nobody knows before a restart.
        let start = runtime.spawn(async move { replays.begin(handle, spec, plan, actor, record).await });
        start.await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
    }

    async fn begin<F: Future<Output = Result<(), ActionError>>>(
        self,
        handle: PipelineHandle,
        spec: ReplaySpec,
        plan: Plan,
        actor: String,
        mut record: impl FnMut(Action) -> F,
    ) -> Result<ReplayView, ReplayError> {
        let Plan { mut ids, taken: mut counts, groups, .. } = plan;
        let _alone = self.jobs.alone().await;
        self.taken(&handle).await.remove_from(&mut ids, &mut counts);
        if ids.is_empty() {
            return Err(if counts.is_empty() { ReplayError::Nothing } else { ReplayError::Taken(counts) });
        }
        if ids.len() > SELECTION_MAX {
            return Err(ReplayError::TooMany);
        }
        ReplayError::check_rate(spec.rate)?;
        if spec.target == ReplayTarget::Source && handle.takes_messages() {
            return Err(ReplayError::NoSource(handle.name().to_owned()));
        }
        if self.jobs.live() >= LIVE_MAX {
            return Err(ReplayError::TooManyJobs);
        }
        let spec = ReplaySpec { selection: cut(&spec.selection), ..spec };
        let number = self.jobs.next_number();
        let created = handle.now();
        let facts = Facts {
            number,
            engine_job: engine_job(created, self.jobs.naming().salt(), number),
            pipeline: handle.name().to_owned(),
            spec,
            total: ids.len() as u64,
            ids_crc: checksum(&ids),
            created,
            actor,
            groups,
        };
        let mut progress = JobProgress::new();
        progress.begin_trial(&facts.spec);
        let (job, ids) = self.jobs.write_new(facts, progress, ids).await?;
        if let Err(error) = record(start_of(&job)).await {
            self.jobs.withdraw(&job).await;
            return Err(error.into());
        }
        self.jobs.add(&job);
        if let Some(jobs) = handle.shared_records()
            && let Err(error) = group::share(&jobs, self.jobs.runner(), &job, &ids).await
        {
            self.jobs.withdraw(&job).await;
            let ended = Action { action: ActionKind::ReplayAbort, ..start_of(&job) };
            let _ = record(ended.note(format!("it could not start: {error}"))).await;
            return Err(error.into());
        }
        self.jobs.forget_oldest().await;
        let view = job.view();
        job.tell();
        let keep = self.jobs.keep_of(&job);
        let task = Task { job, keep, handle: handle.clone(), ids, is_resumed: false };
        tokio::spawn(task.run());
        Ok(view)
    }

    /// Records the start of jobs that this process had written down when it ended and that were not recorded yet. To be
    /// called with [`Self::attach`], before other jobs can start.
    #[doc(hidden)]
    pub fn record_missing(&self, handle: &PipelineHandle, actions: &Actions) {
        let Ok(runtime) = Handle::try_current() else { return };
        let starts: Vec<Action> =
            self.jobs.unsettled(handle.name()).iter().map(|job| start_of(job)).collect();
        if starts.is_empty() {
            return;
        }
        let (actions, pipeline) = (actions.clone(), handle.name().to_owned());
        runtime.spawn(async move {
            let Ok(recorded) = actions.recorded_replays(&pipeline).await else { return };
            for start in starts {
                if start.id.as_ref().is_some_and(|id| recorded.contains(id)) {
                    continue;
                }
                // What cannot be recorded now is with the next start of the process.
                let _ = actions.record(start).await;
            }
        });
    }

    /// All jobs that are remembered, the latest first.
    pub fn list(&self) -> Vec<ReplayView> {
        self.jobs.views()
    }

    /// The job with this name, if there is one.
    pub fn get(&self, id: &str) -> Option<ReplayView> {
        self.try_get(id).ok()
    }

    /// Like [`Self::get`], with the reason if there is none.
    pub fn try_get(&self, id: &str) -> Result<ReplayView, ReplayError> {
        Ok(self.jobs.find(id)?.view())
    }

    /// Whether this process runs the job, so that its state here is up to date.
    #[doc(hidden)]
    pub fn runs_here(&self, id: &str) -> bool {
        self.jobs.find(id).is_ok_and(|job| !job.is_elsewhere())
    }

    /// Pauses a job: nothing more is put back until it is resumed. Letters already put back continue.
    pub async fn pause(&self, id: &str) -> Result<ReplayView, ReplayError> {
        self.set(id, ReplayState::Paused).await
    }

    /// Resumes a job that was paused, or that was stopped because too many letters failed; the latter begins with
    /// another canary.
    pub async fn resume(&self, id: &str) -> Result<ReplayView, ReplayError> {
        self.set(id, ReplayState::Running).await
    }

    /// Aborts a job. Letters that were put back and have not started are taken back shortly; running calls finish and
    /// are counted.
    pub async fn abort(&self, id: &str) -> Result<ReplayView, ReplayError> {
        self.set(id, ReplayState::Aborted).await
    }

    /// Changes the state of a job. Durable when this returns.
    async fn set(&self, id: &str, state: ReplayState) -> Result<ReplayView, ReplayError> {
        let job = self.jobs.find(id)?;
        match job.progress().state {
            was if was.is_over() || !job.is_elsewhere() => self.jobs.set(&job, state).await,
            // It is not running, which is all that a pause asks for.
            ReplayState::Stopped if state == ReplayState::Paused => Ok(job.view()),
            _ => {
                let unanswered = || ReplayError::Unanswered { id: job.id.clone() };
                let jobs = self.jobs.others().group(&job.facts.pipeline).ok_or_else(unanswered)?;
                group::ask_runner(&jobs, &job, state).await?.ok_or_else(unanswered)
            }
        }
    }
}

impl fmt::Debug for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replays").field("jobs", &self.jobs.views().len()).finish_non_exhaustive()
    }
}
