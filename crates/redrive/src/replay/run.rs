//! The task of one replay job: puts letters back at the given pace and counts how they end.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::Class;
use tokio::time::Instant;

use super::held::{HeldLetters, HeldWhy, InVain, in_vain_max};
use super::job::{AUTO_ACTOR, Facts, ReplayState};
use super::live::{Job, JobWriter};
use super::pace::Pace;
use super::stop::AtEnd;
use crate::engine::{EngineError, LetterState, ReplayAnswer, ReplayJob};
use crate::handle::{HandleError, PipelineHandle};
use crate::messages::{held, recall};
use crate::run::random_source::RandomSource;

/// Letters that are put back in one batch, while the pipeline waits for the disk.
const BATCH_MAX: usize = 256;
/// Letters whose state is queried in one batch.
const ASK_MAX: usize = 1024;
/// Interval at which letters under way are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Interval at which the progress is written. Progress that was lost is recounted from the engine.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// Interval between searches for letters that an aborted job has put back and that have not started.
const RECALL_EVERY: Duration = Duration::from_millis(500);
/// Interval at which held letters are counted.
const HELD_EVERY: Duration = Duration::from_secs(1);
/// Beyond this number of letters under way, held ones are not counted.
const HELD_OF_MAX: usize = 100_000;
/// Delay before retrying after the engine was unavailable.
const NOT_NOW: Duration = Duration::from_secs(1);

/// Whether an action is due: it was never done, or `every` has passed since the last time.
pub(super) fn is_due(last: Option<Instant>, every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= every)
}

pub(super) struct Task {
    pub job: Arc<Job>,
    pub keep: JobWriter,
    pub handle: PipelineHandle,
    pub ids: Arc<[u64]>,
    /// Whether the job was begun by an earlier process, or by this one before its pipeline stopped.
    pub is_resumed: bool,
}

/// The answer to a query about letters.
#[derive(Default)]
struct Asked {
    /// The ends of letters that have ended, in order; `true` means dead again.
    ended: Vec<bool>,
    /// Letters that no longer exist or are not in this job.
    gone: u64,
    /// Letters that were taken back.
    recalled: u64,
}

impl Asked {
    fn died(&self) -> u64 {
        self.ended.iter().filter(|died| **died).count() as u64
    }
}

/// Why a task ends before its job.
enum Halt {
    /// The pipeline has stopped; the job continues when it runs again.
    Later,
    /// The engine is unavailable; the job continues shortly.
    NotNow(String),
    /// The job can never continue.
    Failed(String),
}

impl From<HandleError> for Halt {
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Stopped(_) => Self::Later,
            HandleError::Engine(EngineError::Unavailable(why)) => Self::NotNow(why),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl Task {
    pub(super) async fn run(self) {
        let mut is_resumed = self.is_resumed;
        let ended = loop {
            let changed = self.job.changed.notified();
            match self.work(std::mem::take(&mut is_resumed)).await {
                // Letters that were put back but not counted are recognised when they are offered again.
                Err(Halt::NotNow(why)) => {
                    self.job.change(|progress| {
                        // The reason for a stop is worth keeping.
                        if progress.state != ReplayState::Stopped {
                            progress.note = Some(why);
                        }
                    });
                    self.keep.write(&self.job).await;
                    let _ = tokio::time::timeout(NOT_NOW, changed).await;
                }
                ended => break ended,
            }
        };
        if let Err(Halt::Failed(why)) = ended {
            self.job.change(|progress| {
                if !progress.state.is_over() {
                    progress.state = ReplayState::Failed;
                    progress.note = Some(why);
                }
            });
        }
        self.keep.write(&self.job).await;
        self.job.detach();
    }

    async fn work(&self, is_resumed: bool) -> Result<(), Halt> {
        let begun = Instant::now();
        let Facts { spec, actor, .. } = &self.job.facts;
        let at_end = if actor == AUTO_ACTOR { AtEnd::Stopped } else { AtEnd::Done };
        let mut pace = Pace::new(spec.rate, begun.elapsed());
        let mut random = RandomSource::from_entropy();
        if is_resumed {
            // When the process ended, no more calls can have been in flight than may run at once.
            let (most, total) = (self.handle.concurrency() as u64, self.ids.len() as u64);
            self.job.change(|progress| {
                let in_flight = progress.in_flight_max(total).min(most);
                progress.sent_twice_max = (progress.sent_twice_max + in_flight).min(total);
            });
        }
        let mut under_way = self.recount().await?;
        let (mut kept, mut recalled) = (Instant::now(), None);
        let (mut counted, mut count_every, mut in_vain) = (Instant::now(), HELD_EVERY, InVain::default());
        let policy = self.handle.policy();
        let delays = policy.delay_ranges(policy.attempts_max(), Class::Transient);
        let in_vain_max = in_vain_max(delays.into_iter().map(|(_, longest)| longest));
        loop {
            let changed = self.job.changed.notified();
            if self.job.is_elsewhere() {
                return Err(Halt::Later);
            }
            if under_way.is_empty() {
                // Before others go, which are not to be taken back.
                self.none_under_way();
            }
            let left = self.may_go();
            let put_back = if left.is_empty() {
                0
            } else {
                let wanted = left.len().min(BATCH_MAX);
                let granted = pace.take(begun.elapsed(), wanted, random.draw());
                self.publish(&left[..granted], &mut pace, &mut under_way).await?
            };
            if !under_way.is_empty() && self.takes_back() && is_due(recalled, RECALL_EVERY) {
                recalled = Some(Instant::now());
                let letters = under_way.iter().copied().collect();
                recall(&self.handle, self.job.facts.engine_job, &letters).await?;
            }
            let look_began = Instant::now();
            let ended = self.look(&mut under_way).await?;
            let look_took = look_began.elapsed();
            let total = self.ids.len() as u64;
            let mut is_judged = self.job.change(|progress| progress.judge(spec, total, at_end));
            if !under_way.is_empty() && counted.elapsed() >= count_every {
                let began = Instant::now();
                let lasts = self.count_held(&under_way, &mut in_vain).await?;
                counted = Instant::now();
                // It must not keep the pipeline busy either.
                count_every = HELD_EVERY.max((counted - began) * 20);
                let lasts = (lasts, in_vain_max);
                is_judged |= self.job.change(|progress| progress.judge_held(spec, total, at_end, lasts));
            }
            if self.is_over(under_way.is_empty()) {
                return Ok(());
            }
            if is_judged || kept.elapsed() >= KEEP_EVERY {
                self.keep.write(&self.job).await;
                kept = Instant::now();
            }
            if put_back == 0 && ended == 0 {
                self.rest(&pace, under_way.is_empty(), look_took, changed).await;
            }
        }
    }

    /// The letters that may be put back now, regardless of the pace.
    fn may_go(&self) -> &[u64] {
        let progress = self.job.progress();
        if progress.state != ReplayState::Running {
            return &[];
        }
        let left = &self.ids[(progress.offered as usize).min(self.ids.len())..];
        let most = progress.allowance(&self.job.facts.spec).min(left.len() as u64);
        &left[..most as usize]
    }

    /// Recounts how the letters of this job have ended, from the letters themselves. Returns those still under way.
    async fn recount(&self) -> Result<VecDeque<u64>, Halt> {
        let offered = (self.job.progress().offered as usize).min(self.ids.len());
        let (mut under_way, mut succeeded, mut dead_again, mut recalled) = (VecDeque::new(), 0, 0, 0);
        for part in self.ids[..offered].chunks(ASK_MAX) {
            let mut asked = part.iter().copied().collect();
            let answered = self.ask(&mut asked).await?;
            succeeded += answered.ended.len() as u64 - answered.died();
            dead_again += answered.died();
            recalled += answered.recalled;
            under_way.append(&mut asked);
        }
        self.job.change(|progress| {
            // Letters that were resolved long ago may no longer exist, but were counted before.
            let (succeeded, dead_again) =
                (succeeded.max(progress.succeeded), dead_again.max(progress.dead_again));
            // Letters that ended since the progress was written.
            progress.latest.push_unordered(succeeded - progress.succeeded, dead_again - progress.dead_again);
            (progress.succeeded, progress.dead_again, progress.forgotten) = (succeeded, dead_again, 0);
            progress.recalled = recalled.max(progress.recalled);
            // Letters that were put back and are neither under way nor counted by their end no longer exist.
            progress.forgotten = progress.under_way().saturating_sub(under_way.len() as u64);
        });
        Ok(under_way)
    }

    /// Puts back the letters that the pace has granted. Returns how many got an answer.
    async fn publish(
        &self,
        granted: &[u64],
        pace: &mut Pace,
        under_way: &mut VecDeque<u64>,
    ) -> Result<usize, Halt> {
        if granted.is_empty() {
            return Ok(0);
        }
        let Facts { engine_job, spec, actor, .. } = &self.job.facts;
        let job =
            ReplayJob { id: *engine_job, due: self.handle.now(), force: spec.force, target: spec.target };
        let answers = self.handle.replay_by(Some(actor), job, granted).await?;
        let went = answers.iter().filter(|answer| **answer == ReplayAnswer::Replayed).count();
        pace.give_back(granted.len() - went);
        self.job.change(|progress| {
            progress.note = None;
            for (id, answer) in granted.iter().zip(&answers) {
                if progress.count(*answer) {
                    under_way.push_back(*id);
                }
            }
        });
        Ok(answers.len())
    }

    /// Checks a part of the letters under way. Returns how many have ended.
    async fn look(&self, under_way: &mut VecDeque<u64>) -> Result<usize, Halt> {
        // At least a thirtieth, so that all letters of a large job are checked every few seconds.
        let mut looks = (under_way.len() / 32).max(ASK_MAX).min(under_way.len());
        let mut ended = 0;
        while looks > 0 {
            let part = looks.min(ASK_MAX);
            looks -= part;
            let mut asked: VecDeque<u64> = under_way.drain(..part).collect();
            let answered = self.ask(&mut asked).await?;
            ended += part - asked.len();
            self.job.change(|progress| {
                progress.forgotten += answered.gone;
                progress.succeeded += answered.ended.len() as u64 - answered.died();
                progress.dead_again += answered.died();
                progress.recalled += answered.recalled;
                answered.ended.iter().for_each(|died| progress.latest.push(*died));
            });
            under_way.append(&mut asked);
        }
        Ok(ended)
    }

    /// Queries the letters in `asked`, leaves those that have not ended, and returns how the others ended.
    async fn ask(&self, asked: &mut VecDeque<u64>) -> Result<Asked, Halt> {
        let ids: Vec<u64> = asked.iter().copied().collect();
        let standings = self.handle.letter_standings(self.job.facts.engine_job, ids).await?;
        let mut answered = Asked::default();
        let is_aborted = self.is_aborted();
        let mut standing = standings.into_iter();
        asked.retain(|_| {
            // A letter that does not exist was resolved long ago, and one that is not in the job was skipped.
            let Some(letter) = standing.next().flatten().filter(|letter| letter.in_job) else {
                answered.gone += 1;
                return false;
            };
            match letter.state {
                LetterState::Replaying if letter.is_last_job => return true,
                LetterState::Succeeded if letter.is_last_job => answered.ended.push(false),
                // The end is no longer known.
                LetterState::Erased => answered.gone += 1,
                // It has not died since, so it was taken back.
                LetterState::Open if is_aborted && letter.dead_at <= self.job.facts.created => {
                    answered.recalled += 1;
                }
                // Open, discarded since, or taken by a later job: it died again in this one.
                _ => answered.ended.push(true),
            }
            false
        });
        Ok(answered)
    }

    /// Counts the letters under way that are held. Returns for how long all of them have been in vain.
    async fn count_held(
        &self,
        under_way: &VecDeque<u64>,
        in_vain: &mut InVain,
    ) -> Result<Duration, HandleError> {
        if under_way.len() > HELD_OF_MAX {
            self.job.change(|progress| progress.held = None);
            return Ok(Duration::ZERO);
        }
        let letters: HashSet<u64> = under_way.iter().copied().collect();
        let found = held(&self.handle, &letters).await?;
        let figures = self.handle.figures();
        let why = HeldWhy::of(&figures);
        let number = if figures.is_gated() { letters.len() } else { found.len() } as u64;
        self.job.change(|progress| progress.held = Some(HeldLetters { letters: number, why }));
        let failed: Vec<u64> =
            found.into_iter().filter(|(_, has_failed)| *has_failed).map(|(letter, _)| letter).collect();
        Ok(in_vain.lasts(&letters, &failed, figures.succeeded, why, self.handle.now()))
    }

    /// Nothing is held any more, and nothing is to be taken back.
    fn none_under_way(&self) {
        let progress = self.job.progress();
        if progress.held.is_some() || progress.gave_up {
            self.job.change(|progress| (progress.held, progress.gave_up) = (None, false));
        }
    }

    fn is_aborted(&self) -> bool {
        self.job.progress().state == ReplayState::Aborted
    }

    fn takes_back(&self) -> bool {
        self.job.progress().takes_back()
    }

    /// Whether nothing is left to do or to count.
    fn is_over(&self, all_ended: bool) -> bool {
        let total = self.ids.len() as u64;
        self.job.change(|progress| {
            if progress.state == ReplayState::Running && progress.offered >= total && all_ended {
                progress.state = ReplayState::Done;
            }
            progress.state == ReplayState::Failed || (progress.state.is_over() && all_ended)
        })
    }

    async fn rest(
        &self,
        pace: &Pace,
        all_ended: bool,
        look_took: Duration,
        changed: tokio::sync::futures::Notified<'_>,
    ) {
        let until_next = (!self.may_go().is_empty()).then(|| pace.wait());
        // Checks must not keep the pipeline busy: they may take a fifth of the time.
        let until_look = (!all_ended).then(|| LOOK_EVERY.max(look_took * 4));
        let wait = until_next.into_iter().chain(until_look).min();
        match wait {
            Some(wait) => drop(tokio::time::timeout(wait, changed).await),
            None => changed.await,
        }
    }
}
