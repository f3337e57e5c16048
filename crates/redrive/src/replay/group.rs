//! Jobs that several processes share: each job is run by one process and seen by all. Its runner writes its progress
//! every few seconds; if it stops writing, another process takes the job over. Should two of them run a job for a
//! moment, the marks on the letters still ensure that each letter is replayed once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::book::JobBook;
use super::job::{ReplayState, ReplayView};
use super::live::{Job, blocking};
use super::records::{self, JobRecord};
use super::run::{Task, is_due};
use crate::engine::SharedRecords;
use crate::handle::{HandleError, PipelineHandle};
use crate::messages::recall;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a runner writes a job that has not changed.
const BEAT_EVERY: Duration = Duration::from_secs(3);
/// A job whose runner has not written for this long is taken over.
const SILENCE_MAX: Duration = Duration::from_secs(12);
/// Interval between searches for letters of a job that was aborted elsewhere.
const RECALL_EVERY: Duration = Duration::from_secs(1);
/// How long to wait until the runner of a job carries out a request made at another process.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Finished jobs that are still listed; older ones are forgotten.
const OVER_MAX: usize = 200;

/// Follows the shared jobs of one pipeline.
pub(super) struct Follower {
    book: Arc<JobBook>,
    handle: PipelineHandle,
    jobs: Arc<dyn SharedRecords>,
    silence: Silence,
    /// Jobs that run here, with their last written state.
    own: BTreeMap<String, Own>,
    /// When letters of jobs that were aborted elsewhere were last searched for here.
    recalled: BTreeMap<String, Instant>,
}

struct Own {
    job: Arc<Job>,
    beat: u64,
    written: Option<(ReplayState, Instant)>,
}

impl Follower {
    pub(super) fn new(book: Arc<JobBook>, handle: PipelineHandle, jobs: Arc<dyn SharedRecords>) -> Self {
        Self {
            book,
            handle,
            jobs,
            silence: Silence::default(),
            own: BTreeMap::new(),
            recalled: BTreeMap::new(),
        }
    }

    /// Runs until the pipeline stops.
    pub(super) async fn run(mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if matches!(self.handle.counts().await, Err(HandleError::Stopped(_))) {
                return;
            }
            if self.jobs.is_known() {
                // A failed write is retried at the next look.
                let _ = self.look().await;
            }
        }
    }

    async fn look(&mut self) -> std::io::Result<()> {
        let shared = self.jobs.records(records::PREFIX);
        let all = records::jobs_in(&shared);
        // A job begun before jobs were shared.
        for job in self.book.unshared(self.handle.name(), |id| all.iter().any(|record| record.id == id)) {
            self.take_up(job, 0, &shared).await;
        }
        for record in &all {
            if record.runner == self.book.runner() {
                self.follow_own(record, &shared).await?;
            } else {
                self.follow_other(record, &shared).await?;
            }
        }
        self.book.others().retain(self.handle.name(), |id| all.iter().any(|record| record.id == id));
        for record in records::naming_tenants(&shared) {
            self.write(records::job_key(&record.id), Some(record.to_bytes())).await?;
        }
        self.write_own().await?;
        self.forget_oldest(&all, &shared).await
    }

    async fn follow_own(&mut self, record: &JobRecord, shared: &[(String, Bytes)]) -> std::io::Result<()> {
        if record.progress.is_settled() {
            self.book.known(record);
            return Ok(());
        }
        let job = self.book.known(record);
        let has_stopped = !job.is_attached() && !job.progress().is_settled();
        if has_stopped || !self.own.contains_key(&record.id) {
            self.take_up(Arc::clone(&job), record.beat, shared).await;
        }
        let wish_key = records::wish_key(&record.id);
        let wish = shared.iter().find(|(key, _)| *key == wish_key);
        if let Some((key, value)) = wish {
            if let Some(state) = records::wish_of(value) {
                // A job that is already over ignores the request.
                let _ = self.book.set(&job, state).await;
            }
            self.write(key.clone(), None).await?;
        }
        Ok(())
    }

    async fn follow_other(&mut self, record: &JobRecord, shared: &[(String, Bytes)]) -> std::io::Result<()> {
        let job = self.book.known(record);
        self.own.remove(&record.id);
        job.leave_to_others();
        job.change(|progress| *progress = record.progress.clone());
        self.recall(record, shared).await;
        let is_silent = self.silence.lasts(record, Instant::now());
        if record.progress.is_settled() || !is_silent {
            return Ok(());
        }
        let beat = record.beat + 1;
        let taken = JobRecord { runner: self.book.runner(), beat, ..record.clone() };
        self.write(records::job_key(&record.id), Some(taken.to_bytes())).await?;
        self.take_up(job, beat, shared).await;
        Ok(())
    }

    /// Takes back letters here that a job has put back that was aborted, or gave up, elsewhere. Failures are retried at the next look.
    async fn recall(&mut self, record: &JobRecord, shared: &[(String, Bytes)]) {
        let JobRecord { id, facts, progress, .. } = record;
        if !progress.takes_back() || progress.is_settled() || progress.under_way() == 0 {
            self.recalled.remove(id);
            return;
        }
        if !is_due(self.recalled.get(id).copied(), RECALL_EVERY) {
            return;
        }
        let ids = records::selection_in(shared, id, facts).unwrap_or_default();
        let offered = (progress.offered as usize).min(ids.len());
        let letters = ids[..offered].iter().copied().collect();
        let _ = recall(&self.handle, facts.engine_job, &letters).await;
        self.recalled.insert(id.clone(), Instant::now());
    }

    /// Continues a job here. Its selection is in its file, or in the shared records.
    async fn take_up(&mut self, job: Arc<Job>, beat: u64, shared: &[(String, Bytes)]) {
        if job.is_attached() && job.is_elsewhere() {
            // Its task has not ended yet; the next look takes it up.
            return;
        }
        if !job.is_attached() && !job.progress().is_settled() {
            let ids = match records::selection_in(shared, &job.id, &job.facts) {
                Some(ids) => Ok(ids),
                None => self.book.read_ids(&job).await,
            };
            job.run_here();
            match ids {
                Ok(ids) if job.attach() => {
                    let (keep, handle) = (self.book.keep_of(&job), self.handle.clone());
                    let ids = job.select(ids);
                    let task = Task { job: Arc::clone(&job), keep, handle, ids, is_resumed: true };
                    tokio::spawn(task.run());
                }
                Ok(_) => return,
                Err(why) => job.change(|progress| {
                    if !progress.state.is_over() {
                        (progress.state, progress.note) = (ReplayState::Failed, Some(why));
                    }
                }),
            }
        }
        self.own.insert(job.id.clone(), Own { job, beat, written: None });
    }

    /// Writes the progress of the jobs that run here.
    async fn write_own(&mut self) -> std::io::Result<()> {
        let now = Instant::now();
        let due = |own: &Own| {
            let state = own.job.progress().state;
            own.written.is_none_or(|(written, at)| written != state || now >= at + BEAT_EVERY)
                || own.job.progress().is_settled()
        };
        let due: Vec<String> =
            self.own.iter().filter(|(_, own)| due(own)).map(|(id, _)| id.clone()).collect();
        for id in due {
            let Some(own) = self.own.get_mut(&id) else { continue };
            own.beat += 1;
            let progress = own.job.progress();
            let (state, is_settled) = (progress.state, progress.is_settled());
            let (facts, runner) = (own.job.facts.clone(), self.book.runner());
            let record = JobRecord { id: id.clone(), runner, beat: own.beat, facts, progress };
            self.write(records::job_key(&id), Some(record.to_bytes())).await?;
            if is_settled {
                self.own.remove(&id);
                self.forget_pieces(&id).await?;
            } else if let Some(own) = self.own.get_mut(&id) {
                own.written = Some((state, now));
            }
        }
        Ok(())
    }

    async fn forget_pieces(&self, id: &str) -> std::io::Result<()> {
        for (key, _) in self.jobs.records(&records::pieces_prefix(id)) {
            self.write(key, None).await?;
        }
        Ok(())
    }

    /// Forgets finished jobs beyond the limit; each process forgets those that it ran.
    async fn forget_oldest(&self, all: &[JobRecord], shared: &[(String, Bytes)]) -> std::io::Result<()> {
        let mut over: Vec<&JobRecord> = all.iter().filter(|record| record.progress.is_settled()).collect();
        over.sort_by_key(|record| record.facts.created);
        let surplus = over.len().saturating_sub(OVER_MAX);
        let mine = self.book.runner();
        for record in over.into_iter().take(surplus).filter(|record| record.runner == mine) {
            let prefix = format!("{}{}/", records::PREFIX, record.id);
            for (key, _) in shared.iter().filter(|(key, _)| key.starts_with(&prefix)) {
                self.write(key.clone(), None).await?;
            }
        }
        Ok(())
    }

    async fn write(&self, key: String, value: Option<Vec<u8>>) -> std::io::Result<()> {
        write(&self.jobs, key, value).await
    }
}

/// Shares a new job with the other processes. Its selection is written first, so that a visible job is complete.
pub(super) async fn share(
    jobs: &Arc<dyn SharedRecords>,
    runner: String,
    job: &Job,
    ids: &[u64],
) -> std::io::Result<()> {
    for (number, piece) in records::pieces(ids).into_iter().enumerate() {
        write(jobs, records::piece_key(&job.id, number), Some(piece)).await?;
    }
    let (id, facts, progress) = (job.id.clone(), job.facts.clone(), job.progress());
    let record = JobRecord { id, runner, beat: 1, facts, progress };
    write(jobs, records::job_key(&job.id), Some(record.to_bytes())).await
}

/// Asks the process that runs a job to change its state, and waits until it has; `None` after a timeout.
pub(super) async fn ask_runner(
    jobs: &Arc<dyn SharedRecords>,
    job: &Arc<Job>,
    state: ReplayState,
) -> std::io::Result<Option<ReplayView>> {
    write(jobs, records::wish_key(&job.id), Some(state.name().as_bytes().to_vec())).await?;
    let done = async {
        while job.progress().state != state && !job.progress().state.is_over() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    Ok(tokio::time::timeout(ANSWER_MAX, done).await.ok().map(|()| job.view()))
}

/// Writes a record on a thread that may block.
async fn write(jobs: &Arc<dyn SharedRecords>, key: String, value: Option<Vec<u8>>) -> std::io::Result<()> {
    let jobs = Arc::clone(jobs);
    blocking(move || jobs.write(&key, value.as_deref()).map_err(std::io::Error::other)).await
}

/// How long each runner has been silent, by this process's own clock.
#[derive(Debug, Default)]
struct Silence {
    heard: BTreeMap<String, (String, u64, Instant)>,
}

impl Silence {
    /// Whether the runner of a job has been silent for too long at `now`.
    fn lasts(&mut self, record: &JobRecord, now: Instant) -> bool {
        let heard = (record.runner.clone(), record.beat, now);
        let last = self.heard.entry(record.id.clone()).or_insert_with(|| heard.clone());
        if (&last.0, last.1) != (&heard.0, heard.1) {
            *last = heard;
        }
        let (_, _, since) = last;
        let lasts = now.duration_since(*since) >= SILENCE_MAX;
        if record.progress.is_settled() {
            self.heard.remove(&record.id);
        }
        lasts
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Time;

    use super::*;
    use crate::replay::job::{Facts, JobProgress, ReplaySpec};

    fn record(runner: &str, beat: u64) -> JobRecord {
        let facts = Facts {
            number: 1,
            engine_job: 1,
            pipeline: "orders".into(),
            spec: ReplaySpec::default(),
            total: 1,
            ids_crc: 0,
            created: Time::ZERO,
            actor: "ops".into(),
            groups: crate::replay::TouchedGroups::default(),
        };
        let (id, runner) = ("r-k3x9q-1".to_owned(), runner.to_owned());
        JobRecord { id, runner, beat, facts, progress: JobProgress::new() }
    }

    #[test]
    fn a_runner_is_silent_when_its_beat_stands_still_for_long() {
        let (mut silence, begun) = (Silence::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        assert!(!silence.lasts(&record("a", 1), at(0)));
        assert!(!silence.lasts(&record("a", 1), at(11)));
        assert!(!silence.lasts(&record("a", 2), at(11)), "it has written");
        assert!(!silence.lasts(&record("a", 2), at(22)));
        assert!(silence.lasts(&record("a", 2), at(23)));
        assert!(!silence.lasts(&record("b", 2), at(24)), "somebody else has taken it over");
        assert!(silence.lasts(&record("b", 2), at(40)));
    }
}
