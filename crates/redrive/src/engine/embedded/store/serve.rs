//! The store as an engine.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use redrive_core::{GroupId, Message, Time};

use super::edit::{self, Revision};
use super::erase;
use super::find::Lookup;
use super::import;
use super::store::{Room, Store};
use super::tend::Tending;
use crate::engine::Claimed;
use crate::engine::edit::{EditAnswer, LetterEdit};
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LetterSlot};
use crate::engine::embedded::journal::record::{LetterChanged, Stored, Was};
use crate::engine::embedded::state::book::JOBS_MAX;
use crate::engine::embedded::write::command::Command;
use crate::engine::erase::{EraseAnswer, EraseOrder, WipeProgress};
use crate::engine::groups::GroupFigures;
use crate::engine::import::{ForeignLetter, ImportAnswer};
use crate::engine::ingest::Ingest;
use crate::engine::key_line::KeyLine;
use crate::engine::letter::{
    Letter, LetterChange, LetterScan, LetterStanding, LetterState, REPLAYS_MAX, ReplayAnswer, ReplayJob,
};
use crate::engine::message_state::MessageState;
use crate::engine::pending::{PendingAt, PendingScan, PendingState};
use crate::engine::seam::{
    Announced, Counts, Delivery, Engine, EngineError, Event, Oldest, OnBehalf, Receipt, Settlement, TakeGate,
    Ticket,
};
use crate::engine::store_notice::{StoreNotice, Upkeep};

impl<D: Disk, S: IndexTables> Engine for Store<D, S> {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        let taken = self.hand_out(now, Room::All(room), out);
        self.guard(taken)
    }

    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.check()?;
        let taken = self.hand_out(now, Room::Due(room), out);
        self.guard(taken)
    }

    fn announce(&mut self, next: &[Receipt], _now: Time) -> Result<Announced, EngineError> {
        self.check()?;
        let announced = self.marks.announce(next);
        self.guard(announced)
    }

    fn keep_reminder(&mut self, text: &[u8]) -> Result<(), EngineError> {
        self.check()?;
        let kept = self.reminder.keep(text).map_err(|error| reminding(&error));
        self.guard(kept)
    }

    fn reminder(&mut self) -> Result<Vec<u8>, EngineError> {
        self.reminder.read().map_err(|error| reminding(&error))
    }

    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        self.check()?;
        let noted = self.marks.returned(&batch, &self.waiting.in_flight, &self.tickets);
        self.guard(noted)?;
        let given = self.give(batch);
        self.guard(given)
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.keep_going()?;
        self.marks.forget_ended(&self.tickets)?;
        out.extend(self.tickets.report().map(Event::Durable));
        Ok(())
    }

    fn notices(&mut self, out: &mut Vec<StoreNotice>) {
        self.waiting.book.tables().take_notices(out);
        self.scrubbed.take_notices(out);
    }

    fn upkeep(&self) -> Upkeep {
        let index_rebuilds = self.waiting.book.tables().rebuilds();
        self.scrubbed.add_to(Upkeep { index_rebuilds, ..Upkeep::default() })
    }

    fn next_due(&self) -> Option<Time> {
        if self.gated { None } else { self.waiting.book.delay().next_due() }
    }

    fn gate(&mut self, gate: TakeGate) {
        self.gated = gate.is_closed();
    }

    fn counts(&self) -> Counts {
        self.waiting.counts()
    }

    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        self.waiting.oldest()
    }

    fn groups(&mut self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        self.check()?;
        Ok(self.waiting.book.group_figures(now)?)
    }

    fn reserve_groups(&mut self, decided: &[GroupId]) {
        self.waiting.book.reserve_groups(decided);
    }

    fn letters_in_group(
        &mut self,
        group: GroupId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, EngineError> {
        self.check()?;
        let Some(first) = after.map_or(Some(0), |after| after.checked_add(1)) else { return Ok(Vec::new()) };
        let book = &self.waiting.book;
        Ok(book.letters().groups().letters_from(group, first, limit, book.asked())?)
    }

    fn open_since(&mut self, group: GroupId, since: Time, max: u64) -> Result<u64, EngineError> {
        self.check()?;
        let book = &self.waiting.book;
        Ok(book.letters().groups().open_since(group, since, max, book.asked())?)
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        Some(Arc::new(self.workers.ingest()))
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.workers.set_wake(wake);
    }

    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        let mut found = Vec::new();
        let Some(mut from) = after.map_or(Some(0), |id| id.checked_add(1)) else { return Ok(found) };
        while found.len() < limit {
            let slots = self.waiting.book.letters().range(from, limit.max(64), self.waiting.book.asked())?;
            let Some(last) = slots.last().map(|(seq, _)| *seq) else { break };
            for (seq, slot) in slots {
                if found.len() < limit && state.is_none_or(|state| state == slot.state) {
                    found.push(self.waiting.contents.letter(seq, &slot, &self.options.grouping)?);
                }
            }
            let Some(next) = last.checked_add(1) else { break };
            from = next;
        }
        Ok(found)
    }

    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        self.lookup().look_at_letters(state, after, limit, look_max)
    }

    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError> {
        match self.waiting.book.asked_letter(id)? {
            Some(slot) => self.waiting.contents.letter(id, &slot, &self.options.grouping).map(Some),
            None => Ok(None),
        }
    }

    fn letters_of(&mut self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        self.lookup().find_letters_of(id)
    }

    fn message(&mut self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        self.check()?;
        self.lookup().find_message(id, now)
    }

    fn key_line(&mut self, key: &[u8]) -> Result<Option<KeyLine>, EngineError> {
        self.check()?;
        self.lookup().find_key_line(key)
    }

    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        self.check()?;
        let ready_from = match state {
            PendingState::Ready => self.waiting.ready.resume_from(self.waiting.book.departed().prefix()).0,
            _ => 0,
        };
        self.lookup().list_pending(state, ready_from, after, limit, look_max)
    }

    fn locate(&mut self, id: &str) -> Result<Option<PendingAt>, EngineError> {
        self.check()?;
        self.lookup().locate_by_id(id)
    }

    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError> {
        self.check()?;
        self.now = now;
        let claimed = self.waiting.claim(at, &mut self.marks, now);
        self.guard(claimed)
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.lookup().letters_in_job(job, ids)
    }

    fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<ReplayAnswer>, EngineError> {
        let mut chosen = HashSet::new();
        let mut letters = Vec::new();
        let mut answers = Vec::with_capacity(ids.len());
        for seq in ids {
            let answer = match self.waiting.book.asked_letter(*seq)? {
                _ if chosen.contains(seq) => ReplayAnswer::Already,
                None => ReplayAnswer::NotFound,
                Some(slot) => match refusal(&slot, job) {
                    Some(refusal) => refusal,
                    None => match self.replayed(&slot, job)? {
                        Some(stored) => {
                            letters.push((*seq, stored));
                            ReplayAnswer::Replayed
                        }
                        None => ReplayAnswer::Damaged,
                    },
                },
            };
            if answer == ReplayAnswer::Replayed {
                chosen.insert(*seq);
            }
            answers.push(answer);
        }
        if !letters.is_empty() {
            self.write(|ticket| Command::Replay { ticket, letters })?;
        }
        Ok(answers)
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<bool>, EngineError> {
        let (from, state) = change.states();
        let (mut seqs, mut chosen) = (Vec::new(), HashSet::new());
        let mut changed = Vec::with_capacity(ids.len());
        for seq in ids {
            let change = !chosen.contains(seq)
                && self.waiting.book.asked_letter(*seq)?.is_some_and(|slot| slot.state == from);
            if change {
                chosen.insert(*seq);
                seqs.push(*seq);
            }
            changed.push(change);
        }
        if !seqs.is_empty() {
            let letters = LetterChanged { state, seqs };
            self.write(|ticket| Command::ChangeLetters { ticket, changed: letters })?;
        }
        Ok(changed)
    }

    fn edit_letters(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        let revision = edit::edit(&self.lookup(), edit, letters)?;
        self.write_revision(revision)
    }

    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        let revision = edit::undo(&self.lookup(), edit, ids)?;
        self.write_revision(revision)
    }

    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError> {
        self.check()?;
        let stones = erase::plan(&self.lookup(), order, ids, now)?;
        if !stones.letters.is_empty() {
            let (erased, letters) = (stones.letters.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), stones.letters);
            let recorded = self.erasing.record(&erased);
            self.guard(recorded)?;
            self.write(|ticket| Command::EditLetters { ticket, letters })?;
            self.erasing.want(erased);
        }
        Ok(stones.answers)
    }

    fn wipe(&mut self, _now: Time) -> Result<WipeProgress, EngineError> {
        // Nobody else polls an engine at rest.
        self.keep_going()?;
        Ok(WipeProgress { parts_left: self.erasing.parts_left(), ..WipeProgress::default() })
    }

    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError> {
        edit::message_before(&self.lookup(), id, edit)
    }

    fn import(
        &mut self,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        self.check()?;
        let mut import = import::plan(&self.lookup(), letters, asked.at)?;
        if dry_run || import.letters.is_empty() {
            return Ok(import.answers);
        }
        let (first, letters) = (Arc::new(OnceLock::new()), std::mem::take(&mut import.letters));
        self.write(|ticket| Command::Import { ticket, letters, first: Arc::clone(&first) })?;
        match first.get() {
            Some(Ok(first)) => Ok(import.numbered_from(*first)),
            Some(Err(error)) => Err(EngineError::Unavailable(error.to_string())),
            None => Err(EngineError::Storage("the writer has stopped".to_owned())),
        }
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.wait_for(self.tickets.last())?;
        // The last checkpoint makes the next start quick.
        while self.tending.is_checkpointing() {
            self.wait_for_notes()?;
            self.absorb()?;
        }
        self.upkeep_of(|tending, parts| tending.checkpoint(parts, true));
        while self.tending.is_checkpointing() {
            self.absorb()?;
            if self.tending.is_checkpointing() {
                self.wait_for_notes()?;
            }
        }
        self.upkeep_of(Tending::tell_holding);
        self.marks.clear().map_err(|error| EngineError::Storage(error.to_string()))?;
        self.finish();
        self.absorb()
    }
}

fn reminding(error: &std::io::Error) -> EngineError {
    EngineError::Storage(format!("keeping a reminder: {error}"))
}

fn refusal(slot: &LetterSlot, job: &ReplayJob) -> Option<ReplayAnswer> {
    if slot.jobs.contains(&job.id) {
        Some(ReplayAnswer::Already)
    } else if slot.state != LetterState::Open {
        Some(ReplayAnswer::NotOpen(slot.state))
    } else if slot.replays >= REPLAYS_MAX && !job.force {
        Some(ReplayAnswer::TooOften { replays: slot.replays })
    } else {
        None
    }
}

impl<D: Disk, S: IndexTables> Store<D, S> {
    pub(super) fn lookup(&self) -> Lookup<'_, D, S> {
        Lookup {
            options: &self.options,
            tuning: self.tuning,
            book: &self.waiting.book,
            contents: &self.waiting.contents,
            in_flight: &self.waiting.in_flight,
            keys: &self.waiting.keys,
            doubtful_below: self.doubtful_below,
        }
    }

    /// Takes in what was done and starts what is due.
    fn keep_going(&mut self) -> Result<(), EngineError> {
        let absorbed = self.absorb();
        self.guard(absorbed)?;
        let tended = self.tend();
        self.guard(tended)
    }

    fn write_revision(&mut self, revision: Revision) -> Result<Vec<EditAnswer>, EngineError> {
        let Revision { answers, letters } = revision;
        if !letters.is_empty() {
            self.write(|ticket| Command::EditLetters { ticket, letters })?;
        }
        Ok(answers)
    }

    /// The message of a letter as it goes back to wait for its delivery.
    fn replayed(&self, slot: &LetterSlot, job: &ReplayJob) -> Result<Option<Stored>, EngineError> {
        let Some(stored) = self.waiting.contents.stored_letter(slot)? else { return Ok(None) };
        let Ok(message) = Message::from_wire(stored.wire.clone()) else { return Ok(None) };
        let forgotten = (slot.jobs.len() + 1).saturating_sub(JOBS_MAX);
        Ok(Some(Stored {
            was: Was::Letter,
            key: self.waiting.book.hash_of(&message),
            due: Some(job.due.as_millis()),
            jobs: slot.jobs.iter().skip(forgotten).copied().chain([job.id]).collect(),
            meta: stored.meta.replayed(),
            group: None,
            options: None,
            // They stay with the letter, which is where they are looked for when it dies again.
            replaced: Vec::new(),
            ..stored
        }))
    }
}
