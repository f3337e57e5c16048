//! The state of the memory engine, and which messages may start.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::{Fingerprint, GroupId, Message, Meta, Reason, Time};

use super::lines::KeyLines;
use crate::engine::edit::{EDITS_MAX, EditAnswer, LetterEdit, Replaced};
use crate::engine::erase::{EraseAnswer, EraseOrder, tombstone, untitled};
use crate::engine::history::History;
use crate::engine::import::{ForeignLetter, ImportAnswer, is_same};
use crate::engine::ingest::{Accepted, NewMessage};
use crate::engine::letter::{LetterState, REPLAYS_MAX, ReplayAnswer, ReplayJob};
use crate::engine::pending::PendingState;
use crate::engine::seam::{
    AfterDead, Claimed, Counts, Delivery, DeliveryOrder, EngineError, Execution, Receipt, Settlement,
    Settling, StoreOptions, Suspect, Ticket, Verdict, share,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryState {
    Ready,
    /// Waits for its key, after it was passed over once.
    Blocked,
    /// Was blocked and is now the first of its key.
    Released,
    Delayed(Time),
    Letter,
    Done,
}

pub(super) struct MemoryEntry {
    pub(super) message: Message,
    pub(super) meta: Meta,
    pub(super) history: History,
    pub(super) state: EntryState,
    /// When it was due, even if it had to wait for its key since; `None` for a fresh message.
    pub(super) due: Option<Time>,
    /// The number of the current hand-out.
    pub(super) in_flight: Option<u64>,
    pub(super) in_line: bool,
}

pub(super) struct LetterEntry {
    pub(super) state: LetterState,
    pub(super) reason: Reason,
    pub(super) dead_at: Time,
    pub(super) job: Option<u64>,
    /// All jobs it went through. With only the last one, an older job that is resumed would requeue it a second time.
    pub(super) jobs: BTreeSet<u64>,
    pub(super) group: Fingerprint,
    /// The versions replaced by edits, the latest last.
    pub(super) replaced: Vec<Replaced>,
    pub(super) options: Option<Arc<str>>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) options: StoreOptions,
    /// Reminders for the next process, by kind.
    pub(super) reminders: [Vec<u8>; 2],
    pub(super) entries: BTreeMap<u64, MemoryEntry>,
    pub(super) ready: BTreeSet<u64>,
    pub(super) released: BTreeSet<u64>,
    pub(super) delayed: BTreeSet<(Time, u64)>,
    pub(super) lines: KeyLines,
    pub(super) letters: BTreeMap<u64, LetterEntry>,
    /// Groups with a decision.
    pub(super) decided: Vec<GroupId>,
    pub(super) seen: HashMap<String, (u64, Time)>,
    /// Messages that were in flight when the process died, and how many times.
    pub(super) suspects: BTreeMap<u64, u32>,
    /// The suspect that runs alone.
    pub(super) announced: Option<u64>,
    pub(super) next_seq: u64,
    pub(super) next_hand_out: u64,
    pub(super) epoch: u32,
    pub(super) next_ticket: u64,
    pub(super) unsettled: Vec<(Ticket, Vec<Settlement>)>,
    pub(super) gated: bool,
    pub(super) odd_to_due: bool,
    pub(super) wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Inner {
    pub(super) fn accept(&mut self, batch: Vec<NewMessage>, now: Time) -> Vec<Accepted> {
        batch.into_iter().map(|new| self.accept_one(new, now)).collect()
    }

    pub(super) fn accept_one(&mut self, new: NewMessage, now: Time) -> Accepted {
        if let Some(window) = self.options.dedup {
            if let Some((seq, at)) = self.seen.get(new.message.id())
                && now.since(*at) < window
            {
                return Accepted::Duplicate { seq: *seq };
            }
            self.seen.insert(new.message.id().to_owned(), (self.next_seq, now));
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let meta =
            Meta { created: new.message.created(), deadline: new.message.deadline(), ..Meta::default() };
        let state = new.due.map_or(EntryState::Ready, EntryState::Delayed);
        let history = History::default();
        let due = new.due;
        let message = new.message;
        self.entries
            .insert(seq, MemoryEntry { message, meta, history, state, due, in_flight: None, in_line: false });
        if let Some(due) = due {
            self.delayed.insert((due, seq));
        } else {
            self.ready.insert(seq);
            self.join_line(seq);
        }
        Accepted::New { seq }
    }

    pub(super) fn key_of(&self, seq: u64) -> Option<Bytes> {
        if self.options.ordering == DeliveryOrder::None {
            return None;
        }
        self.entries[&seq].message.key().map(Bytes::copy_from_slice)
    }

    pub(super) fn join_line(&mut self, seq: u64) {
        if let Some(key) = self.key_of(seq) {
            self.lines.join(key, seq);
            self.entry(seq).in_line = true;
        }
    }

    pub(super) fn leave_line(&mut self, seq: u64) {
        let Some(key) = self.key_of(seq) else { return };
        self.entry(seq).in_line = false;
        self.lines.leave(&key, seq);
    }

    /// Lets a blocked message start if it is now the first of its key, after another message of the key was settled.
    pub(super) fn line_moves(&mut self, seq: u64) {
        let Some(key) = self.key_of(seq) else { return };
        let Some(first) = self.lines.first(&key) else { return };
        if self.entry(first).state == EntryState::Blocked && self.may_start(first) {
            self.entry(first).state = EntryState::Released;
            self.released.insert(first);
        }
    }

    pub(super) fn entry(&mut self, seq: u64) -> &mut MemoryEntry {
        self.entries.get_mut(&seq).expect("a number handed out has an entry")
    }

    /// Whether it is the first of its key and no message of the key is handed out.
    pub(super) fn may_start(&self, seq: u64) -> bool {
        let Some(key) = self.key_of(seq) else { return true };
        if self.lines.is_held(&key) {
            return false;
        }
        let Some(line) = self.lines.of(&key) else { return true };
        line.first() == Some(&seq) && line.iter().all(|seq| self.entries[seq].in_flight.is_none())
    }

    /// Whether the policy blocks its key because an earlier letter of the key is open.
    pub(super) fn is_key_blocked(&self, seq: u64) -> bool {
        if self.options.after_dead == AfterDead::Continue {
            return false;
        }
        let Some(key) = self.key_of(seq) else { return false };
        self.letters.range(..seq).any(|(id, letter)| {
            letter.state == LetterState::Open && self.entries[id].message.key() == Some(key.as_ref())
        })
    }

    pub(super) fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) {
        if self.gated {
            return;
        }
        let due = self.startable_due(now, room);
        let fresh = self.startable_fresh(room);
        let (due_places, fresh_places) = share(room, due.len(), fresh.len(), self.odd_to_due);
        // The turn changes only if there was an odd place: a take with none must not use it up.
        self.odd_to_due ^= !room.is_multiple_of(2);
        for seq in due.into_iter().take(due_places).chain(fresh.into_iter().take(fresh_places)) {
            let delivery = self.hand_out(seq);
            out.push(delivery);
        }
    }

    /// Makes a message wait for its key.
    pub(super) fn set_aside(&mut self, seq: u64) {
        if let EntryState::Delayed(due) = self.entry(seq).state {
            self.delayed.remove(&(due, seq));
        }
        self.ready.remove(&seq);
        self.released.remove(&seq);
        self.entry(seq).state = EntryState::Blocked;
    }

    /// Up to `room` due messages that may start; those passed over because of their keys are marked as blocked.
    pub(super) fn startable_due(&mut self, now: Time, room: usize) -> Vec<u64> {
        let mut startable: Vec<u64> = Vec::new();
        let mut from = (Time::ZERO, 0);
        while startable.len() < room
            && let Some((due, seq)) =
                self.delayed.range(from..).next().filter(|(due, _)| *due <= now).copied()
        {
            from = (due, seq + 1);
            if !self.entry(seq).in_line {
                self.join_line(seq);
            }
            if self.may_start(seq) {
                // It may have joined its line in front of a message chosen earlier.
                let (chosen, passed): (Vec<u64>, Vec<u64>) =
                    startable.into_iter().partition(|chosen| self.may_start(*chosen));
                startable = chosen;
                for passed in passed {
                    self.set_aside(passed);
                }
                startable.push(seq);
            } else {
                self.set_aside(seq);
            }
        }
        startable
    }

    /// Up to `room` other messages that may start. None may be chosen that turns out unable to start: its permit would
    /// stay unused until the next event.
    pub(super) fn startable_fresh(&mut self, room: usize) -> Vec<u64> {
        let mut startable = Vec::new();
        let mut from = 0;
        while startable.len() < room
            && let Some(seq) = self.next_fresh(from)
        {
            from = seq + 1;
            if self.may_start(seq) {
                startable.push(seq);
            } else {
                self.set_aside(seq);
            }
        }
        startable
    }

    /// The first message at or after `from` that is ready, or was released by its key.
    pub(super) fn next_fresh(&self, from: u64) -> Option<u64> {
        let ready = self.ready.range(from..).next();
        let released = self.released.range(from..).next();
        ready.into_iter().chain(released).min().copied()
    }

    pub(super) fn hand_out(&mut self, seq: u64) -> Delivery {
        let doomed = self.is_key_blocked(seq).then_some(Reason::KeyBlocked);
        let suspect = self.suspects.get(&seq);
        let suspect =
            suspect.map(|crashes| Suspect { crashes: *crashes, first_crash: None, last_crash: None });
        let suspect = suspect.map(Box::new);
        let epoch = self.epoch;
        if let EntryState::Delayed(due) = self.entry(seq).state {
            self.delayed.remove(&(due, seq));
        }
        self.ready.remove(&seq);
        self.released.remove(&seq);
        let at = self.next_hand_out;
        self.next_hand_out += 1;
        let entry = self.entry(seq);
        entry.in_flight = Some(at);
        Delivery {
            receipt: Receipt { lane: 0, epoch, seq, at },
            message: entry.message.clone(),
            meta: entry.meta,
            history: entry.history.clone(),
            due: entry.due,
            arrived: None,
            origin: None,
            doomed,
            suspect,
        }
    }

    /// Counts a crash for a message that was handed out when the process died. A suspect that was not announced did
    /// not run.
    pub(super) fn crashed_with(&mut self, seq: u64) {
        if self.options.execution == Execution::Elsewhere {
            return;
        }
        if self.announced == Some(seq) || !self.suspects.contains_key(&seq) {
            *self.suspects.entry(seq).or_default() += 1;
        }
    }

    pub(super) fn put_back(&mut self, seq: u64) {
        let entry = self.entry(seq);
        entry.in_flight = None;
        match entry.state {
            EntryState::Ready => drop(self.ready.insert(seq)),
            EntryState::Released => drop(self.released.insert(seq)),
            EntryState::Delayed(due) => drop(self.delayed.insert((due, seq))),
            EntryState::Blocked | EntryState::Letter | EntryState::Done => {}
        }
    }

    pub(super) fn apply(&mut self, settlement: Settlement) {
        let Settlement { delivery, verdict, attempt } = settlement;
        let seq = delivery.receipt.seq;
        if delivery.receipt.epoch != self.epoch
            || self.entries.get(&seq).is_none_or(|entry| entry.in_flight != Some(delivery.receipt.at))
        {
            return;
        }
        // The delivery may know more than was stored: attempts that were retried in place.
        if verdict != Verdict::Release {
            self.entry(seq).history = match &attempt {
                Some(attempt) => delivery.history.with(attempt),
                None => delivery.history,
            };
        }
        self.entry(seq).in_flight = None;
        self.lines.unclaim(seq);
        self.announced = self.announced.filter(|announced| *announced != seq);
        if verdict != Verdict::Release {
            self.suspects.remove(&seq);
        }
        match verdict {
            Verdict::Release => self.put_back(seq),
            Verdict::Done => {
                self.entry(seq).state = EntryState::Done;
                self.leave_line(seq);
                if let Some(letter) = self.letters.get_mut(&seq) {
                    letter.state = LetterState::Succeeded;
                }
            }
            Verdict::Retry { due, meta } => {
                let entry = self.entry(seq);
                entry.meta = meta;
                entry.state = EntryState::Delayed(due);
                entry.due = Some(due);
                self.delayed.insert((due, seq));
            }
            Verdict::Dead { reason, meta, at } => {
                let entry = self.entry(seq);
                entry.meta = meta;
                entry.state = EntryState::Letter;
                let last = entry.history.attempts().pop();
                let group = self.options.grouping.of(reason, last.as_ref());
                let before = self.letters.remove(&seq);
                let (job, jobs, replaced) =
                    before.map(|letter| (letter.job, letter.jobs, letter.replaced)).unwrap_or_default();
                let state = LetterState::Open;
                let letter = LetterEntry {
                    state,
                    reason,
                    dead_at: at,
                    job,
                    jobs,
                    group,
                    replaced,
                    options: self.options.letter_options.clone(),
                };
                self.letters.insert(seq, letter);
                self.leave_line(seq);
            }
        }
        self.line_moves(seq);
    }

    /// Creates a letter from a message that died elsewhere.
    pub(super) fn import(&mut self, letter: ForeignLetter, dry_run: bool, now: Time) -> ImportAnswer {
        let ForeignLetter { message, meta, history, .. } = letter;
        let is_known = |(seq, letter): &(&u64, &LetterEntry)| {
            let before = letter.replaced.iter().map(|replaced| &replaced.message);
            before.chain([&self.entries[*seq].message]).any(|version| is_same(version, &message))
        };
        if let Some((seq, _)) = self.letters.iter().find(is_known) {
            return ImportAnswer::Already { number: Some(*seq) };
        }
        let (reason, seq) = (Reason::Imported, self.next_seq);
        let group = self.options.grouping.of(reason, history.attempts().last());
        if dry_run {
            return ImportAnswer::Imported { number: None, group };
        }
        self.next_seq += 1;
        let state = EntryState::Letter;
        self.entries.insert(
            seq,
            MemoryEntry { message, meta, history, state, due: None, in_flight: None, in_line: false },
        );
        let letter = LetterEntry {
            state: LetterState::Open,
            reason,
            dead_at: now,
            job: None,
            jobs: BTreeSet::new(),
            group: group.clone(),
            replaced: Vec::new(),
            options: None,
        };
        self.letters.insert(seq, letter);
        ImportAnswer::Imported { number: Some(seq), group }
    }

    /// Requeues a letter.
    pub(super) fn replay(&mut self, job: &ReplayJob, seq: u64) -> ReplayAnswer {
        let Some(letter) = self.letters.get_mut(&seq) else { return ReplayAnswer::NotFound };
        if letter.jobs.contains(&job.id) {
            return ReplayAnswer::Already;
        }
        if letter.state != LetterState::Open {
            return ReplayAnswer::NotOpen(letter.state);
        }
        let replays = self.entries[&seq].meta.replays;
        if replays >= REPLAYS_MAX && !job.force {
            return ReplayAnswer::TooOften { replays };
        }
        letter.state = LetterState::Replaying;
        letter.job = Some(job.id);
        letter.jobs.insert(job.id);
        let entry = self.entry(seq);
        entry.meta = entry.meta.replayed();
        entry.state = EntryState::Delayed(job.due);
        entry.due = Some(job.due);
        self.delayed.insert((job.due, seq));
        self.join_line(seq);
        ReplayAnswer::Replayed
    }

    /// Gives an open letter a new message.
    pub(super) fn edit(&mut self, edit: &str, new: &LetterEdit) -> EditAnswer {
        let Some(letter) = self.letters.get_mut(&new.letter) else { return EditAnswer::NotFound };
        if letter.state != LetterState::Open {
            return EditAnswer::NotOpen(letter.state);
        }
        let last = letter.replaced.last().map(|replaced| replaced.edit.as_str());
        if !new.from.is_current(letter.dead_at, last) {
            return EditAnswer::Changed;
        }
        if letter.replaced.len() >= EDITS_MAX {
            return EditAnswer::TooMany;
        }
        let Some(entry) = self.entries.get_mut(&new.letter) else { return EditAnswer::Damaged };
        let message = std::mem::replace(&mut entry.message, new.message.clone());
        letter.replaced.push(Replaced { edit: edit.to_owned(), message });
        EditAnswer::Done
    }

    /// Gives an open letter the message back that it had before its last edit.
    pub(super) fn undo_edit(&mut self, edit: &str, seq: u64) -> EditAnswer {
        let Some(letter) = self.letters.get_mut(&seq) else { return EditAnswer::NotFound };
        if letter.state != LetterState::Open {
            return EditAnswer::NotOpen(letter.state);
        }
        let Some(replaced) = letter.replaced.pop_if(|replaced| replaced.edit == edit) else {
            return EditAnswer::Changed;
        };
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.message = replaced.message;
        }
        EditAnswer::Done
    }

    /// Erases the content of a letter, unless it is being replayed.
    pub(super) fn erase(
        &mut self,
        order: &EraseOrder,
        seq: u64,
        now: Time,
    ) -> Result<EraseAnswer, EngineError> {
        let Some(letter) = self.letters.get_mut(&seq) else { return Ok(EraseAnswer::NotFound) };
        if let Some(refusal) = EraseAnswer::refusal(letter.state) {
            return Ok(refusal);
        }
        let Some(entry) = self.entries.get_mut(&seq) else { return Ok(EraseAnswer::NotFound) };
        let stone = tombstone(&entry.message, order, now);
        entry.message = stone.map_err(|error| EngineError::Damaged(error.to_string()))?;
        entry.history = entry.history.without_texts();
        letter.state = LetterState::Erased;
        letter.replaced.clear();
        letter.group = untitled(letter.group.clone());
        Ok(EraseAnswer::Done)
    }

    /// Hands out one message to be settled, whatever it waits for.
    pub(super) fn claim(&mut self, seq: u64) -> Claimed {
        match self.entries.get(&seq) {
            Some(entry) if entry.in_flight.is_some() => Claimed::InFlight,
            Some(entry) if Self::pending_state(entry).is_some() => {
                // The caller's verdict settles it, whatever the state of its key.
                let delivery = Delivery { doomed: None, ..self.hand_out(seq) };
                self.lines.claim(seq, self.key_of(seq));
                Claimed::Taken(Box::new(delivery))
            }
            _ => Claimed::NotThere,
        }
    }

    /// The state of a pending message; `None` for a letter or a finished message.
    pub(super) fn pending_state(entry: &MemoryEntry) -> Option<PendingState> {
        match entry.state {
            _ if entry.in_flight.is_some() => Some(PendingState::InFlight),
            EntryState::Ready => Some(PendingState::Ready),
            EntryState::Blocked | EntryState::Released => Some(PendingState::KeyWait),
            EntryState::Delayed(_) => Some(PendingState::timed(entry.meta.deferred)),
            EntryState::Letter | EntryState::Done => None,
        }
    }

    /// Deliveries whose verdict is not durable yet; of two verdicts on one delivery, the first counts.
    fn settling(&self) -> Settling {
        let (mut settling, mut met) = (Settling::default(), BTreeSet::new());
        for settlement in self.unsettled.iter().flat_map(|(_, batch)| batch) {
            let receipt = settlement.delivery.receipt;
            let is_out =
                |entry: &MemoryEntry| receipt.epoch == self.epoch && entry.in_flight == Some(receipt.at);
            if !self.entries.get(&receipt.seq).is_some_and(is_out) || !met.insert(receipt.seq) {
                continue;
            }
            match settlement.verdict {
                Verdict::Done | Verdict::Dead { .. } => settling.over += 1,
                Verdict::Retry { meta, .. } if meta.deferred => settling.held += 1,
                Verdict::Retry { .. } => settling.delayed += 1,
                Verdict::Release => {}
            }
        }
        settling
    }

    pub(super) fn counts(&self) -> Counts {
        let letters = |state| self.letters.values().filter(|letter| letter.state == state).count() as u64;
        let mut by_state = [0; PendingState::ALL.len()];
        for state in self.entries.values().filter_map(Self::pending_state) {
            by_state[state as usize] += 1;
        }
        let count = |state: PendingState| by_state[state as usize];
        Counts {
            ready: count(PendingState::Ready),
            delayed: count(PendingState::Delayed),
            held: count(PendingState::Held),
            key_wait: count(PendingState::KeyWait),
            in_flight: count(PendingState::InFlight),
            settling: self.settling(),
            letters_open: letters(LetterState::Open),
            letters_replaying: letters(LetterState::Replaying),
            letters_succeeded: letters(LetterState::Succeeded),
            letters_discarded: letters(LetterState::Discarded),
            letters_erased: letters(LetterState::Erased),
            accepted: self.next_seq,
            key_order_voided: 0,
        }
    }
}
