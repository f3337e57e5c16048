//! The engine seam: what the dispatcher calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::engine::ingest::Ingest;
use redrive::engine::{
    Announced, Claimed, Condition, Counts, Delivery, EditAnswer, Engine, EngineError, EraseAnswer,
    EraseOrder, Event, ForeignLetter, GroupFigures, GroupMark, GroupMarks, ImportAnswer, Letter,
    LetterChange, LetterEdit, LetterScan, LetterStanding, LetterState, Oldest, OnBehalf, Partitions,
    PendingAt, PendingScan, PendingState, ProblemKind, Receipt, ReplayAnswer, ReplayJob, Settlement,
    SharedRecords, TakeGate, Ticket, WipeProgress,
};
use redrive::timestamp;
use redrive_core::{GroupId, Message, Time};

use super::kafka::{KafkaEngine, LastCommit};
use crate::clock::wall_time;
use crate::consume::mailbox::Order;
use crate::group::control::Pause;
use crate::topics::LaneKind;

/// How long everything that was given may take to be safe at the end.
const CLOSE_MAX: Duration = Duration::from_secs(30);
const CLOSE_STEP: Duration = Duration::from_millis(2);
/// While partitions are held back, due messages do not come by time alone.
const HELD_BACK_STEP: Duration = Duration::from_millis(20);

impl Engine for KafkaEngine {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        self.hand_out(now, room, false, out);
        Ok(())
    }

    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        self.hand_out(now, room, true, out);
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
        Ok(self.settle_batch(batch))
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.report(out);
        self.check()
    }

    fn next_due(&self) -> Option<Time> {
        if self.gated || self.control.is_paused() || !self.ownership.is_ours() {
            return None;
        }
        let next = [self.backlog.next_due(), self.transit.next_due()].into_iter().flatten().min()?;
        let starts = !self.backlog.is_holding_back()
            && self.control.is_known()
            && !self.duplicates.is_reading()
            && !self.ownership.is_unsure()
            && self.unwritten.is_empty();
        if starts { Some(next) } else { Some(next.max(self.now.plus(HELD_BACK_STEP))) }
    }

    fn gate(&mut self, gate: TakeGate) {
        self.gated = gate.is_closed();
    }

    fn gate_all(&mut self, gate: TakeGate) -> Result<(), EngineError> {
        let pause = Pause { by: self.name.clone(), at: timestamp::print(wall_time()) };
        self.control.pause(gate.is_closed().then_some(&pause))?;
        self.gated = gate.is_closed();
        Ok(())
    }

    fn shared_pause(&self) -> Option<bool> {
        Some(self.control.is_paused())
    }

    fn counts(&self) -> Counts {
        let letters = self.letters.counts();
        let (delayed, held) = self.backlog.delayed();
        let keys = self.backlog.keys();
        let mut counts = Counts {
            delayed: delayed - held + self.transit.delayed(),
            held,
            key_wait: keys.waiting() as u64,
            key_order_voided: keys.voided(),
            letters_open: letters.open,
            letters_replaying: letters.replaying,
            letters_succeeded: letters.succeeded,
            letters_discarded: letters.discarded,
            letters_erased: letters.erased,
            in_flight: self.transit.finishing(),
            ..Counts::default()
        };
        for lane in self.lanes.iter() {
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
        let letters = self.letters.counts();
        let stopped = self.lanes.iter().filter(|lane| lane.stopped.is_some()).count() as u64;
        let blocked = self.unwritten.lanes();
        let mut condition = Condition {
            letters_loading: !self.letters.are_loaded(),
            partitions: Partitions {
                reading: (self.lanes.len() as u64).saturating_sub(stopped + blocked),
                blocked,
                stopped,
                unassigned: 0,
            },
            spooled: self.copies.spooled() as u64,
            letter_twins: letters.twins,
            foreign_letters: letters.unreadable,
            passed_over: self.duplicates.skipped(),
            ..Condition::default()
        };
        self.group.describe(&self.lanes, &mut condition);
        for lane in self.lanes.iter() {
            if let Some(stopped) = &lane.stopped {
                let place = format!("{}/{}", lane.topic, lane.partition);
                condition.problem(stopped.kind, place, &stopped.problem);
            }
        }
        let topics = self.copies.topics();
        for (source, tier) in self.backlog.separated(&self.lanes, &topics.beside_source()) {
            let text = format!(
                "{tier} is not assigned to this member, so key order cannot be kept and nothing of the partition is \
                 delivered; all members must run with the same tiers, each with as many partitions as the source"
            );
            condition.problem(ProblemKind::Assign, source, text);
        }
        if let Some(problem) = self.control.problem(Instant::now()) {
            condition.problem(ProblemKind::Read, format!("{}.control", self.pipeline.name), problem);
        }
        self.unwritten.describe(&self.lanes, &mut condition);
        if let Some(refusal) = self.letters.refusal(Instant::now()) {
            condition.problem(ProblemKind::Letters, &*topics.letters().name, refusal);
        }
        condition
    }

    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        Ok(Oldest { pending: self.backlog.oldest(&self.lanes), letter: self.letters.oldest() })
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

    fn letters_of(&mut self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        self.letters.letters_of(id)
    }

    fn groups(&mut self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        self.letters.groups(now)
    }

    fn reserve_groups(&mut self, decided: &[GroupId]) {
        self.letters.reserve_groups(decided);
    }

    fn letters_in_group(
        &mut self,
        group: GroupId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, EngineError> {
        self.letters.letters_in_group(group, after, limit)
    }

    fn open_since(&mut self, group: GroupId, since: Time, max: u64) -> Result<u64, EngineError> {
        self.letters.open_since(group, since, max)
    }

    fn group_marks(&self) -> Option<GroupMarks> {
        Some(self.control.marks())
    }

    fn mark_group(&mut self, mark: &GroupMark) -> Result<(), EngineError> {
        self.control.mark(mark)
    }

    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        Some(self.control.shared_records())
    }

    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        Ok(self.backlog.list(&self.lanes, state, after, limit, look_max, self.transit.delayed()))
    }

    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError> {
        self.check()?;
        self.now = now;
        if !self.ownership.is_certain() || self.closed || self.duplicates.is_reading() {
            return Err(EngineError::Unavailable("the partitions are being assigned".to_owned()));
        }
        let claimed = self.backlog.claim(&mut self.lanes, at, now);
        Ok(claimed.map_or(Claimed::NotThere, |delivery| Claimed::Taken(Box::new(delivery))))
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.letters.letter_standings(job, ids)
    }

    fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ReplayAnswer>, EngineError> {
        self.check_written(ids)?;
        let answers = self.letters.replay(job, ids, asked)?;
        let replay = self.copies.topics().replay();
        let replayed = ids.iter().zip(&answers).filter(|(_, answer)| **answer == ReplayAnswer::Replayed);
        for (id, _) in replayed {
            if !self.lanes.contains(&replay.name, replay.partition((*id >> 48) as i32)) {
                continue;
            }
            // Until its record is read it waits here, so that nothing of its key overtakes it.
            self.transit.expect_replay(*id, job.due);
            if self.backlog.keys().is_ordered()
                && let Some(letter) = self.letters.letter(*id)?
            {
                self.backlog.keys_mut().letter_replayed(&letter.message, *id);
            }
        }
        Ok(answers)
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<bool>, EngineError> {
        self.check_written(ids)?;
        // Whether a letter blocks its key is asked when it matters.
        self.letters.change_letters(change, ids, asked)
    }

    fn edit_letters(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        let ids: Vec<u64> = letters.iter().map(|letter| letter.letter).collect();
        self.check_written(&ids)?;
        self.letters.edit_letters(edit, letters, asked)
    }

    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        self.check_written(ids)?;
        self.letters.undo_edit(edit, ids, asked)
    }

    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError> {
        self.check_written(ids)?;
        self.letters.erase_letters(order, ids, now)
    }

    fn wipe(&mut self, _now: Time) -> Result<WipeProgress, EngineError> {
        Ok(self.trimmer.trim_now())
    }

    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError> {
        self.letters.message_before(id, edit)
    }

    fn import(
        &mut self,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        self.letters.import(&letters, dry_run, asked)
    }

    fn close(&mut self) -> Result<(), EngineError> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        self.settle_deferred();
        let until = Instant::now() + CLOSE_MAX;
        let safe = wait_for_copies(self, until);
        self.write_last_progress();
        let safe = wait_for_copies(self, until) && safe;
        let places = if self.ownership.is_released() { Vec::new() } else { self.last_commit() };
        self.mailbox.order(Order::Close { epoch: self.lanes.epoch(), places });
        self.poller.join();
        self.hear();
        self.letters.close();
        if !safe {
            return Err(EngineError::Unavailable("some copies were not acknowledged in time".to_owned()));
        }
        let problem = match self.last_answer.take() {
            Some(LastCommit::Accepted) => {
                self.tickets.end();
                return self.check();
            }
            Some(LastCommit::Failed(problem)) => problem,
            None => "the polling thread has ended before it".to_owned(),
        };
        Err(EngineError::Unavailable(format!("the last commit failed: {problem}")))
    }
}

/// Waits until every copy is acknowledged; whether that was in time.
fn wait_for_copies(engine: &mut KafkaEngine, until: Instant) -> bool {
    loop {
        engine.hear();
        engine.copies.poll();
        engine.handle_written();
        if engine.copies.is_empty() {
            return true;
        }
        // What cannot be written now is not waited for: its records are not committed.
        if engine.copies.is_stuck() || Instant::now() > until || engine.failed.is_some() {
            return false;
        }
        std::thread::sleep(CLOSE_STEP);
    }
}
