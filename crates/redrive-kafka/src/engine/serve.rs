//! The pipeline in Kafka as an engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::engine::ingest::Ingest;
use redrive::engine::{
    Announced, Claimed, Condition, Counts, Delivery, Engine, EngineError, Event, Letter, LetterChange,
    LetterScan, LetterStanding, LetterState, Oldest, PendingAt, PendingScan, PendingState, Receipt,
    ReplayAnswer, ReplayJob, Settlement, Ticket,
};
use redrive::timestamp;
use redrive_core::Time;

use super::engine::{Claim, KafkaEngine, LastCommit};
use crate::backlog::keys::hash_of;
use crate::clock::wall_time;
use crate::consume::mailbox::Order;
use crate::group::control::Pause;
use crate::topics::LaneKind;

/// How long everything that was given may take to be safe at the end.
const CLOSE_MAX: Duration = Duration::from_secs(30);
const CLOSE_STEP: Duration = Duration::from_millis(2);
/// While partitions are held back, due messages do not come by time alone.
const HELD_BACK_STEP: Duration = Duration::from_millis(20);
/// Messages that are looked at for the oldest.
const OLDEST_OF: usize = 64;

impl Engine for KafkaEngine {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        self.hand_out(now, room, out);
        Ok(())
    }

    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        self.hand_out_only_due(now, room, out);
        Ok(())
    }

    fn announce(&mut self, next: &[Receipt], now: Time) -> Result<Announced, EngineError> {
        self.check()?;
        Ok(self.announce_alone(next, now))
    }

    fn keep_reminder(&mut self, text: &[u8]) -> Result<(), EngineError> {
        // It is only a reminder: without it the next process learns the same from its first calls.
        if let Err(error) = std::fs::write(&self.reminder, text) {
            tracing::warn!(file = %self.reminder.display(), %error, "a reminder for the next process cannot be kept");
        }
        Ok(())
    }

    fn reminder(&mut self) -> Result<Vec<u8>, EngineError> {
        Ok(std::fs::read(&self.reminder).unwrap_or_default())
    }

    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        self.check()?;
        Ok(self.give(batch))
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.absorb(out);
        self.check()
    }

    fn next_due(&self) -> Option<Time> {
        if self.gated || self.control.is_paused() || self.claim != Claim::Ours {
            return None;
        }
        let first = |set: &std::collections::BTreeSet<(u64, u64)>| {
            set.first().map(|(due, _)| Time::from_millis(*due))
        };
        let under_way = self.under_way.first().map(|(due, ..)| Time::from_millis(*due));
        let put_back = self.put_back.values().min().copied();
        let next =
            [self.ahead.next_due(), under_way, put_back, first(&self.copying)].into_iter().flatten().min()?;
        let starts = self.held_back.is_empty()
            && self.control.is_known()
            && !self.twins.is_reading()
            && self.unsure.is_none()
            && self.unwritten.is_empty();
        if starts { Some(next) } else { Some(next.max(self.now.plus(HELD_BACK_STEP))) }
    }

    fn gate(&mut self, closed: bool) {
        self.gated = closed;
    }

    fn pause(&mut self, paused: bool) -> Result<(), EngineError> {
        let pause = Pause { by: self.name.clone(), at: timestamp::print(wall_time()) };
        self.control.write(paused.then_some(&pause))?;
        self.gated = paused;
        Ok(())
    }

    fn shared_pause(&self) -> Option<bool> {
        Some(self.control.is_paused())
    }

    fn counts(&self) -> Counts {
        let letters = self.letters.counts();
        let mut counts = Counts {
            delayed: (self.ahead.len() - self.ahead.held() + self.copying.len() + self.put_back.len()) as u64,
            held: self.ahead.held() as u64,
            key_wait: self.keys.blocked() as u64,
            key_order_voided: self.key_order_voided,
            letters_open: letters.open,
            letters_replaying: letters.replaying,
            letters_succeeded: letters.succeeded,
            letters_discarded: letters.discarded,
            in_flight: self.ending.len() as u64,
            ..Counts::default()
        };
        for lane in &self.lanes {
            counts.in_flight += lane.out.len() as u64;
            match lane.kind {
                LaneKind::Source => counts.ready += lane.fifo.len() as u64 + lane.unread(),
                LaneKind::Tier => counts.delayed += lane.unread(),
                LaneKind::Replay => {}
            }
        }
        counts
    }

    fn condition(&self) -> Condition {
        self.describe_condition()
    }

    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        let fresh =
            self.lanes.iter().filter_map(|lane| lane.fifo.front()).map(|waiting| waiting.message.created());
        let due = self.ahead.first(OLDEST_OF).map(|waiting| waiting.message.created());
        Ok(Oldest { pending: fresh.chain(due).min(), letter: self.letters.oldest() })
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        None
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.mailbox.on_wake(Arc::clone(&wake));
        self.letters.on_wake(wake);
    }

    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        self.letters.letters(state, after, limit)
    }

    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        self.letters.scan_letters(state, after, limit, look_max)
    }

    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError> {
        self.letters.letter(id)
    }

    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        Ok(self.list_pending(state, after, limit, look_max))
    }

    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError> {
        self.check()?;
        self.now = now;
        self.claim_pending(at)
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.letters.letter_standings(job, ids)
    }

    fn acting_for(&mut self, actor: Option<&str>) {
        self.letters.acting_for(actor);
    }

    fn replay(&mut self, job: &ReplayJob, ids: &[u64], now: Time) -> Result<Vec<ReplayAnswer>, EngineError> {
        self.check_written(ids)?;
        let answers = self.letters.replay(job, ids, now)?;
        for (id, answer) in ids.iter().zip(&answers) {
            let here = || {
                let partition = self.replay_topic.partition((*id >> 48) as i32);
                self.by_name.contains_key(&(Arc::clone(&self.replay_topic.name), partition))
            };
            if *answer != ReplayAnswer::Replayed || !here() {
                continue;
            }
            // Until its record is read it waits here, so that nothing of its key overtakes it.
            self.put_back.insert(*id, job.due);
            if self.is_ordered()
                && let Some(key) = self.letters.letter(*id)?.and_then(|letter| hash_of(&letter.message))
            {
                self.keys.letter_closed(key, *id);
                self.keys.join(key, *id);
            }
        }
        Ok(answers)
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<bool>, EngineError> {
        self.check_written(ids)?;
        // Whether a letter blocks its key is asked when it matters.
        self.letters.change_letters(change, ids, now)
    }

    fn close(&mut self) -> Result<(), EngineError> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        self.settle_what_waited();
        let until = Instant::now() + CLOSE_MAX;
        let safe = self.wait_for_copies(until);
        self.write_last_progress();
        let safe = self.wait_for_copies(until) && safe;
        let places = if self.claim == Claim::LetGo { Vec::new() } else { self.last_places() };
        self.mailbox.order(Order::Close { epoch: self.epoch, places });
        self.poller.join();
        self.hear();
        self.letters.close();
        if !safe {
            return Err(EngineError::Unavailable("some copies were not acknowledged in time".to_owned()));
        }
        let problem = match self.last_answer.take() {
            Some(LastCommit::Kept) => {
                self.tickets.end();
                return self.check();
            }
            Some(LastCommit::Failed(problem)) => problem,
            None => "the polling thread has ended before it".to_owned(),
        };
        Err(EngineError::Unavailable(format!("the last commit failed: {problem}")))
    }
}

impl KafkaEngine {
    /// Waits until nothing is on its way any more; whether that was in time.
    fn wait_for_copies(&mut self, until: Instant) -> bool {
        loop {
            self.hear();
            self.outbox.poll(&mut self.ended);
            self.absorb_ended();
            if self.outbox.is_empty() {
                return true;
            }
            // What cannot be written now is not waited for: its records are not committed.
            let is_hopeless = self.outbox.failing_count() == self.outbox.len();
            if is_hopeless || Instant::now() > until || self.failed.is_some() {
                return false;
            }
            std::thread::sleep(CLOSE_STEP);
        }
    }
}
