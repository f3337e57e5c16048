//! The memory engine: the simplest implementation of the seam, for tests and the simulation.
//!
//! Verdicts become durable at the next [`Deliver::poll`]; [`Memory::crash`] drops those that are not, as a dying
//! process would.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::{GroupId, Message, Time};
use tokio::sync::oneshot;

use super::inner::{EntryState, Inner, MemoryEntry};
use super::lookup::Lookup;
use crate::engine::edit::{EditAnswer, LetterEdit};
use crate::engine::erase::{EraseAnswer, EraseOrder, WipeProgress};
use crate::engine::groups::GroupFigures;
use crate::engine::import::{ForeignLetter, ImportAnswer, is_same};
use crate::engine::ingest::{Ingest, IngestAnswer, NewMessage};
use crate::engine::letter::{
    Letter, LetterChange, LetterScan, LetterStanding, LetterState, ReplayAnswer, ReplayJob, SCAN_BYTES,
};
use crate::engine::message_state::KeyLine;
use crate::engine::message_state::MessageState;
use crate::engine::pending::{PendingAt, PendingScan, PendingState};
use crate::engine::seam::{
    Announced, Claimed, Counts, Deliver, Delivery, DeliveryOrder, EngineError, Event, KeepLetters, Oldest,
    OnBehalf, Query, Receipt, ReminderKind, Settlement, StoreOptions, TakeGate, Ticket,
};

/// An engine without a disk. Clones share one store, so that a test can look inside while a runtime owns it.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Mutex<Inner>>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("counts", &self.lock().counts()).finish()
    }
}

impl Memory {
    pub fn new(options: StoreOptions) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { options, ..Inner::default() })) }
    }

    /// Simulates the death of the process: verdicts that are not durable are lost, and messages in flight wait again.
    pub fn crash(&self) {
        let mut inner = self.lock();
        // A message that came back is not a suspect, even if its verdict was lost.
        let unsettled = std::mem::take(&mut inner.unsettled);
        let given = unsettled.iter().flat_map(|(_, batch)| batch).filter(|given| given.verdict.clears());
        let returned: HashSet<u64> = given.map(|given| given.delivery.receipt.seq).collect();
        inner.epoch += 1;
        inner.gated = false;
        let in_flight: Vec<u64> =
            inner.entries.iter().filter(|(_, e)| e.in_flight.is_some()).map(|(seq, _)| *seq).collect();
        for seq in in_flight {
            // A claimed message did not run.
            if returned.contains(&seq) {
                inner.lines.unclaim(seq);
                inner.suspects.remove(&seq);
            } else if !inner.lines.unclaim(seq) {
                inner.crashed_with(seq);
            }
            inner.put_back(seq);
            inner.line_moves(seq);
        }
        inner.announced = None;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct MemoryIngest(Memory);

impl Ingest for MemoryIngest {
    fn submit(&self, batch: Vec<NewMessage>, now: Time) -> oneshot::Receiver<IngestAnswer> {
        let (answer, receiver) = oneshot::channel();
        let (accepted, wake) = {
            let mut inner = self.0.lock();
            (inner.accept(batch, now), inner.wake.clone())
        };
        // The batch is accepted even if the caller is gone.
        let _ = answer.send(Ok(accepted));
        if let Some(wake) = wake {
            wake();
        }
        receiver
    }
}

impl Deliver for Memory {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.lock().take(now, room, out);
        Ok(())
    }

    fn announce(&mut self, next: &[Receipt], _now: Time) -> Result<Announced, EngineError> {
        self.lock().announced = next.first().map(|first| first.seq);
        Ok(Announced::Yes)
    }

    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        let mut inner = self.lock();
        inner.next_ticket += 1;
        let ticket = Ticket(inner.next_ticket);
        inner.unsettled.push((ticket, batch));
        let wake = inner.wake.clone();
        drop(inner);
        // It becomes durable at the next poll, so the owner must be woken.
        if let Some(wake) = wake {
            wake();
        }
        Ok(ticket)
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        let mut inner = self.lock();
        for (ticket, batch) in std::mem::take(&mut inner.unsettled) {
            for settlement in batch {
                inner.apply(settlement);
            }
            out.push(Event::Durable(ticket));
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Time> {
        let inner = self.lock();
        if inner.gated { None } else { inner.delayed.first().map(|(due, _)| *due) }
    }

    fn claim(&mut self, at: &PendingAt, _now: Time) -> Result<Claimed, EngineError> {
        Ok(self.lock().claim(at.number))
    }

    fn gate(&mut self, gate: TakeGate) {
        self.lock().gated = gate.is_shut();
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        Some(Arc::new(MemoryIngest(self.clone())))
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.lock().wake = Some(wake);
    }

    fn keep_reminder(&mut self, kind: ReminderKind, content: &[u8]) -> Result<(), EngineError> {
        self.lock().reminders[kind as usize] = content.to_vec();
        Ok(())
    }

    fn reminder(&mut self, kind: ReminderKind) -> Result<Vec<u8>, EngineError> {
        Ok(self.lock().reminders[kind as usize].clone())
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.poll(&mut Vec::new())
    }
}

impl KeepLetters for Memory {
    fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<ReplayAnswer>, EngineError> {
        let mut inner = self.lock();
        Ok(ids.iter().map(|seq| inner.replay(job, *seq)).collect())
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<bool>, EngineError> {
        let (from, to) = change.states();
        let mut inner = self.lock();
        let mut change_one = |id: &u64| match inner.letters.get_mut(id) {
            Some(letter) if letter.state == from => {
                letter.state = to;
                true
            }
            _ => false,
        };
        Ok(ids.iter().map(&mut change_one).collect())
    }

    fn edit_letters(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        let mut inner = self.lock();
        Ok(letters.iter().map(|letter| inner.edit(edit, letter)).collect())
    }

    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        let mut inner = self.lock();
        Ok(ids.iter().map(|seq| inner.undo_edit(edit, *seq)).collect())
    }

    fn import(
        &mut self,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        let mut inner = self.lock();
        let mut batch: Vec<Message> = Vec::new();
        let mut answers = Vec::with_capacity(letters.len());
        for letter in letters {
            // A dry run creates no letters, so earlier ones of the same batch are compared here.
            if dry_run && batch.iter().any(|before| is_same(before, &letter.message)) {
                answers.push(ImportAnswer::Already { number: None });
                continue;
            }
            batch.push(letter.message.clone());
            answers.push(inner.import(letter, dry_run, asked.at));
        }
        Ok(answers)
    }

    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError> {
        let mut inner = self.lock();
        ids.iter().map(|seq| inner.erase(order, *seq, now)).collect()
    }

    /// There are no other copies to overwrite.
    fn wipe(&mut self, _now: Time) -> Result<WipeProgress, EngineError> {
        Ok(WipeProgress::default())
    }

    fn reserve_groups(&mut self, decided: &[GroupId]) {
        self.lock().decided = decided.to_vec();
    }
}

impl Query for Memory {
    fn counts(&self) -> Counts {
        self.lock().counts()
    }

    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        let inner = self.lock();
        let waits = |entry: &&MemoryEntry| !matches!(entry.state, EntryState::Letter | EntryState::Done);
        // Numbers are assigned in the order of acceptance, so the first is the oldest.
        let pending = inner.entries.values().find(waits).map(|entry| entry.meta.created);
        let is_ready = |entry: &&MemoryEntry| matches!(entry.state, EntryState::Ready | EntryState::Released);
        let ready = inner.entries.values().find(is_ready).map(|entry| entry.meta.created);
        let open = inner.letters.values().filter(|letter| letter.state == LetterState::Open);
        Ok(Oldest {
            pending: pending.filter(|created| *created > Time::ZERO),
            ready: ready.filter(|created| *created > Time::ZERO),
            letter: open.map(|letter| letter.dead_at).min(),
        })
    }

    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        let inner = self.lock();
        let from = after.map_or(0, |id| id.saturating_add(1));
        let wanted =
            inner.letters.range(from..).filter(|(_, letter)| state.is_none_or(|s| s == letter.state));
        Ok(wanted.take(limit).filter_map(|(seq, _)| Lookup(&inner).letter(*seq)).collect())
    }

    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        let inner = self.lock();
        let mut scan = LetterScan { next: after, ..LetterScan::default() };
        let from = after.map_or(0, |id| id.saturating_add(1));
        let mut bytes = 0;
        for (seq, letter) in inner.letters.range(from..) {
            if scan.letters.len() >= limit || bytes >= SCAN_BYTES || scan.scanned >= look_max as u64 {
                return Ok(scan);
            }
            scan.scanned += 1;
            scan.next = Some(*seq);
            if state.is_none_or(|state| state == letter.state) {
                let letter = Lookup(&inner).letter(*seq);
                bytes += letter.as_ref().map_or(0, Letter::size);
                scan.letters.extend(letter);
            }
        }
        Ok(LetterScan { next: None, ..scan })
    }

    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError> {
        Ok(Lookup(&self.lock()).letter(id))
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        let inner = self.lock();
        Ok(ids.iter().map(|seq| Lookup(&inner).letter_standing(job, *seq)).collect())
    }

    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError> {
        let inner = self.lock();
        let replaced = inner.letters.get(&id).map(|letter| letter.replaced.as_slice()).unwrap_or_default();
        Ok(replaced.iter().find(|replaced| replaced.edit == edit).map(|replaced| replaced.message.clone()))
    }

    fn groups(&mut self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        Ok(Lookup(&self.lock()).open_groups().figures(now))
    }

    fn letters_in_group(
        &mut self,
        group: GroupId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, EngineError> {
        Ok(Lookup(&self.lock()).open_groups().letters(group, after, limit))
    }

    fn open_since(&mut self, group: GroupId, since: Time, max: u64) -> Result<u64, EngineError> {
        Ok(Lookup(&self.lock()).open_groups().open_since(group, since, max))
    }

    fn message(&mut self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        Lookup(&self.lock()).message(id, now)
    }

    fn key_line(&mut self, key: &[u8]) -> Result<Option<KeyLine>, EngineError> {
        let inner = self.lock();
        match (inner.options.ordering, inner.options.dedup) {
            (DeliveryOrder::None, _) => Ok(None),
            (DeliveryOrder::Key, None) => Err(EngineError::NotRemembered),
            (DeliveryOrder::Key, Some(_)) => Ok(Lookup(&inner).key_line(key)),
        }
    }

    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        Ok(Lookup(&self.lock()).scan_pending(state, after, limit, look_max))
    }

    fn locate(&mut self, id: &str) -> Result<Option<PendingAt>, EngineError> {
        let inner = self.lock();
        if inner.options.dedup.is_none() {
            return Err(EngineError::NotRemembered);
        }
        Ok(inner.seen.get(id).and_then(|(seq, _)| Lookup(&inner).pending_at(*seq)))
    }
}
