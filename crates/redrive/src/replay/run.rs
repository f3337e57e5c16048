//! The task of one replay job: puts letters back at their pace and counts what becomes of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::job::{Facts, Progress, ReplayState};
use super::live::{Job, Keep};
use super::pace::Pace;
use crate::engine::{EngineError, LetterState, ReplayAnswer, ReplayJob};
use crate::handle::{HandleError, PipelineHandle};

/// Letters that are put back in one go. The pipeline waits for the disk that long.
const BATCH_MAX: usize = 256;
/// Letters whose state is asked for in one go.
const ASK_MAX: usize = 1024;
/// How long between two looks at what has not come to its end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long between two writes of the progress. What is lost is asked of the engine again.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// How long a job waits before it asks again where nobody answered.
const NOT_NOW: Duration = Duration::from_secs(1);

pub(super) struct Task {
    pub job: Arc<Job>,
    pub keep: Keep,
    pub handle: PipelineHandle,
    pub ids: Vec<u64>,
}

/// Why a task ends before its job does.
enum Halt {
    /// The pipeline has stopped: the job goes on when it runs again.
    Later,
    /// Where the letters are did not answer: the job goes on in a moment.
    NotNow(String),
    /// It can never go on.
    Stopped(String),
}

impl From<HandleError> for Halt {
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Stopped(_) => Self::Later,
            HandleError::Engine(EngineError::Unavailable(why)) => Self::NotNow(why),
            other => Self::Stopped(other.to_string()),
        }
    }
}

impl Task {
    pub(super) async fn run(self) {
        let ended = loop {
            let changed = self.job.changed.notified();
            match self.work().await {
                // Letters that were put back and not counted answer so when they are offered again.
                Err(Halt::NotNow(why)) => {
                    self.job.change(|progress| progress.note = Some(why));
                    self.keep.write(&self.job).await;
                    let _ = tokio::time::timeout(NOT_NOW, changed).await;
                }
                ended => break ended,
            }
        };
        if let Err(Halt::Stopped(why)) = ended {
            self.job.change(|progress| {
                if !progress.state.is_over() {
                    progress.state = ReplayState::Stopped;
                    progress.note = Some(why);
                }
            });
        }
        self.keep.write(&self.job).await;
        self.job.detach();
    }

    async fn work(&self) -> Result<(), Halt> {
        let begun = Instant::now();
        let mut pace = Pace::new(self.job.facts.spec.rate, begun.elapsed());
        let mut under_way = self.recount().await?;
        let mut kept = Instant::now();
        loop {
            let changed = self.job.changed.notified();
            let Progress { state, offered, .. } = self.job.progress();
            let left = &self.ids[(offered as usize).min(self.ids.len())..];
            let put_back = if state == ReplayState::Running && !left.is_empty() {
                self.publish(left, &mut pace, begun.elapsed(), &mut under_way).await?
            } else {
                0
            };
            let look_began = Instant::now();
            let ended = self.look(&mut under_way).await?;
            let look_took = look_began.elapsed();
            if self.is_over(under_way.is_empty()) {
                return Ok(());
            }
            if kept.elapsed() >= KEEP_EVERY {
                self.keep.write(&self.job).await;
                kept = Instant::now();
            }
            if put_back == 0 && ended == 0 {
                self.rest(&pace, under_way.is_empty(), look_took, changed).await;
            }
        }
    }

    /// How the letters of this job have ended, and which have not, by what the letters say of themselves.
    async fn recount(&self) -> Result<VecDeque<u64>, Halt> {
        let Progress { offered, succeeded, dead_again, .. } = self.job.progress();
        self.job.change(|progress| (progress.succeeded, progress.dead_again) = (0, 0));
        let under_way = self.count((offered as usize).min(self.ids.len())).await;
        // Letters that were closed long ago may be gone; they were counted before.
        self.job.change(|progress| {
            progress.succeeded = progress.succeeded.max(succeeded);
            progress.dead_again = progress.dead_again.max(dead_again);
        });
        under_way
    }

    async fn count(&self, offered: usize) -> Result<VecDeque<u64>, Halt> {
        let mut under_way = VecDeque::new();
        for part in self.ids[..offered].chunks(ASK_MAX) {
            let mut asked = part.iter().copied().collect();
            self.ask(&mut asked).await?;
            under_way.append(&mut asked);
        }
        // What was put back and is neither under way nor at an end that a letter tells of has no letter any more.
        self.job.change(|progress| {
            progress.forgotten = 0;
            progress.forgotten = progress.under_way().saturating_sub(under_way.len() as u64);
        });
        Ok(under_way)
    }

    /// Puts back as many of `left` as the pace allows; how many were answered.
    async fn publish(
        &self,
        left: &[u64],
        pace: &mut Pace,
        now: Duration,
        under_way: &mut VecDeque<u64>,
    ) -> Result<usize, Halt> {
        let granted = pace.take(now, left.len().min(BATCH_MAX));
        if granted == 0 {
            return Ok(0);
        }
        let Facts { engine_job, spec, actor, .. } = &self.job.facts;
        let job =
            ReplayJob { id: *engine_job, due: self.handle.now(), force: spec.force, target: spec.target };
        let answers = self.handle.replay_by(Some(actor), job, &left[..granted]).await?;
        let went = answers.iter().filter(|answer| **answer == ReplayAnswer::Replayed).count();
        pace.give_back(granted - went);
        self.job.change(|progress| {
            progress.note = None;
            for (id, answer) in left.iter().zip(&answers) {
                if progress.count(*answer) {
                    under_way.push_back(*id);
                }
            }
        });
        Ok(answers.len())
    }

    /// Looks at a part of what is under way; how many have ended.
    async fn look(&self, under_way: &mut VecDeque<u64>) -> Result<usize, Halt> {
        // A thirtieth at least, so that a large job is seen as a whole every few seconds.
        let mut looks = (under_way.len() / 32).max(ASK_MAX).min(under_way.len());
        let mut ended = 0;
        while looks > 0 {
            let part = looks.min(ASK_MAX);
            looks -= part;
            let mut asked: VecDeque<u64> = under_way.drain(..part).collect();
            let (gone, closed) = self.ask(&mut asked).await?;
            self.job.change(|progress| progress.forgotten += gone);
            ended += closed;
            under_way.append(&mut asked);
        }
        Ok(ended)
    }

    /// Leaves in `asked` what has not ended; counts what has. Returns how many have no letter of this job, and how many are
    /// not asked for any more.
    async fn ask(&self, asked: &mut VecDeque<u64>) -> Result<(u64, usize), Halt> {
        let before = asked.len();
        let ids: Vec<u64> = asked.iter().copied().collect();
        let standings = self.handle.letter_standings(self.job.facts.engine_job, ids).await?;
        let (mut succeeded, mut dead_again, mut gone) = (0, 0, 0);
        let mut standing = standings.into_iter();
        asked.retain(|_| {
            // A letter that is gone was closed long ago, and one that is not in the job was skipped.
            let Some(letter) = standing.next().flatten().filter(|letter| letter.in_job) else {
                gone += 1;
                return false;
            };
            match letter.state {
                LetterState::Replaying if letter.is_last_job => return true,
                LetterState::Succeeded if letter.is_last_job => succeeded += 1,
                // Open, discarded since, or taken by a later job: by this one it died again.
                _ => dead_again += 1,
            }
            false
        });
        self.job.change(|progress| {
            progress.succeeded += succeeded;
            progress.dead_again += dead_again;
        });
        Ok((gone, before - asked.len()))
    }

    /// Whether there is nothing left to do or to count.
    fn is_over(&self, all_ended: bool) -> bool {
        let total = self.ids.len() as u64;
        self.job.change(|progress| {
            if progress.state == ReplayState::Running && progress.offered >= total && all_ended {
                progress.state = ReplayState::Done;
            }
            progress.state == ReplayState::Stopped || (progress.state.is_over() && all_ended)
        })
    }

    async fn rest(
        &self,
        pace: &Pace,
        all_ended: bool,
        look_took: Duration,
        changed: tokio::sync::futures::Notified<'_>,
    ) {
        let Progress { state, offered, .. } = self.job.progress();
        let publishes = state == ReplayState::Running && (offered as usize) < self.ids.len();
        let until_next = publishes.then(|| pace.wait());
        // Looking must not keep the pipeline busy: it may take a fifth of the time.
        let until_look = (!all_ended).then(|| LOOK_EVERY.max(look_took * 4));
        let wait = until_next.into_iter().chain(until_look).min();
        match wait {
            Some(wait) => drop(tokio::time::timeout(wait, changed).await),
            None => changed.await,
        }
    }
}
