//! The memory engine: the plainest form of the seam, for tests and the simulation.
//!
//! Verdicts become durable at the next [`Engine::poll`]; [`Memory::crash`] forgets what was not, as a dying process would.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use redrive_core::{Message, Meta, Reason, Time};
use tokio::sync::oneshot;

use super::history::History;
use super::ingest::{Accepted, Ingest, IngestAnswer, NewMessage};
use super::letter::{
    Letter, LetterChange, LetterScan, LetterStanding, LetterState, REPLAYS_MAX, ReplayAnswer, ReplayJob,
};
use super::message_state::{MessagePhase, MessageState};
use super::seam::{
    AfterDead, Counts, Delivery, Engine, EngineError, Event, Oldest, Ordering, Receipt, Settlement,
    StoreOptions, Ticket, Verdict, share,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Waits for its key, having been passed over once.
    Blocked,
    /// Was blocked and is now the first of its key.
    Released,
    Delayed(Time),
    Letter,
    Done,
}

struct Entry {
    message: Message,
    meta: Meta,
    history: History,
    state: State,
    /// When it was due, also after it had to wait for its key; `None` for a fresh message.
    due: Option<Time>,
    /// The number of the hand-out that is under way.
    in_flight: Option<u64>,
    in_line: bool,
}

struct LetterEntry {
    state: LetterState,
    reason: Reason,
    dead_at: Time,
    job: Option<u64>,
    /// Every job it went through: the last one alone would let an older job that is resumed take it a second time.
    jobs: BTreeSet<u64>,
}

#[derive(Default)]
struct Inner {
    options: StoreOptions,
    entries: BTreeMap<u64, Entry>,
    ready: BTreeSet<u64>,
    released: BTreeSet<u64>,
    delayed: BTreeSet<(Time, u64)>,
    /// Messages of a key that stand in line; only the first may run.
    lines: HashMap<Bytes, BTreeSet<u64>>,
    letters: BTreeMap<u64, LetterEntry>,
    seen: HashMap<String, (u64, Time)>,
    next_seq: u64,
    next_hand_out: u64,
    epoch: u32,
    next_ticket: u64,
    unsettled: Vec<(Ticket, Vec<Settlement>)>,
    gated: bool,
    odd_to_due: bool,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Memory {
    pub fn new(options: StoreOptions) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { options, ..Inner::default() })) }
    }

    /// The process dies: verdicts that were not durable are forgotten, what was in flight waits again.
    pub fn crash(&self) {
        let mut inner = self.lock();
        inner.unsettled.clear();
        inner.epoch += 1;
        inner.gated = false;
        let in_flight: Vec<u64> =
            inner.entries.iter().filter(|(_, e)| e.in_flight.is_some()).map(|(seq, _)| *seq).collect();
        for seq in in_flight {
            inner.put_back(seq);
            inner.line_moves(seq);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn accept(&mut self, batch: Vec<NewMessage>, now: Time) -> Vec<Accepted> {
        batch.into_iter().map(|new| self.accept_one(new, now)).collect()
    }

    fn accept_one(&mut self, new: NewMessage, now: Time) -> Accepted {
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
        let state = new.due.map_or(State::Ready, State::Delayed);
        let history = History::default();
        let due = new.due;
        let message = new.message;
        self.entries
            .insert(seq, Entry { message, meta, history, state, due, in_flight: None, in_line: false });
        if let Some(due) = due {
            self.delayed.insert((due, seq));
        } else {
            self.ready.insert(seq);
            self.join_line(seq);
        }
        Accepted::New { seq }
    }

    fn key_of(&self, seq: u64) -> Option<Bytes> {
        if self.options.ordering == Ordering::None {
            return None;
        }
        self.entries[&seq].message.key().map(Bytes::copy_from_slice)
    }

    fn join_line(&mut self, seq: u64) {
        if let Some(key) = self.key_of(seq) {
            self.lines.entry(key).or_default().insert(seq);
            self.entry(seq).in_line = true;
        }
    }

    fn leave_line(&mut self, seq: u64) {
        let Some(key) = self.key_of(seq) else { return };
        self.entry(seq).in_line = false;
        if let Some(line) = self.lines.get_mut(&key) {
            line.remove(&seq);
            if line.is_empty() {
                self.lines.remove(&key);
            }
        }
    }

    /// Something of its key was settled: a blocked message that is now first may run.
    fn line_moves(&mut self, seq: u64) {
        let Some(key) = self.key_of(seq) else { return };
        let Some(first) = self.lines.get(&key).and_then(BTreeSet::first).copied() else { return };
        if self.entry(first).state == State::Blocked && self.may_start(first) {
            self.entry(first).state = State::Released;
            self.released.insert(first);
        }
    }

    fn entry(&mut self, seq: u64) -> &mut Entry {
        self.entries.get_mut(&seq).expect("a number handed out has an entry")
    }

    /// Whether it is the first of its key and nothing of the key is out.
    fn may_start(&self, seq: u64) -> bool {
        let Some(line) = self.key_of(seq).and_then(|key| self.lines.get(&key)) else { return true };
        line.first() == Some(&seq) && line.iter().all(|seq| self.entries[seq].in_flight.is_none())
    }

    /// Whether an earlier letter of its key is open and the policy blocks the key for that.
    fn is_key_blocked(&self, seq: u64) -> bool {
        if self.options.after_dead == AfterDead::Continue {
            return false;
        }
        let Some(key) = self.key_of(seq) else { return false };
        self.letters.range(..seq).any(|(id, letter)| {
            letter.state == LetterState::Open && self.entries[id].message.key() == Some(key.as_ref())
        })
    }

    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) {
        if self.gated {
            return;
        }
        let due = self.startable_due(now, room);
        let fresh = self.startable_fresh(room);
        let (due_places, fresh_places) = share(room, due.len(), fresh.len(), self.odd_to_due);
        // The turn changes only when there was an odd place to give: a take of none must not use it up.
        self.odd_to_due ^= !room.is_multiple_of(2);
        for seq in due.into_iter().take(due_places).chain(fresh.into_iter().take(fresh_places)) {
            let delivery = self.hand_out(seq);
            out.push(delivery);
        }
    }

    /// Waits for its key from now on.
    fn set_aside(&mut self, seq: u64) {
        if let State::Delayed(due) = self.entry(seq).state {
            self.delayed.remove(&(due, seq));
        }
        self.ready.remove(&seq);
        self.released.remove(&seq);
        self.entry(seq).state = State::Blocked;
    }

    /// Up to `room` due messages that may start; the others of the keys they wait for are set aside as blocked.
    fn startable_due(&mut self, now: Time, room: usize) -> Vec<u64> {
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
                // It may have joined its line in front of one that was chosen before it.
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

    /// Up to `room` others that may start. A place chosen here is used: one that went to somebody who may not start
    /// after all would leave a permit free until something else happens.
    fn startable_fresh(&mut self, room: usize) -> Vec<u64> {
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

    /// The first from `from` on that is ready, or was released by its key.
    fn next_fresh(&self, from: u64) -> Option<u64> {
        let ready = self.ready.range(from..).next();
        let released = self.released.range(from..).next();
        ready.into_iter().chain(released).min().copied()
    }

    fn hand_out(&mut self, seq: u64) -> Delivery {
        let doomed = self.is_key_blocked(seq).then_some(Reason::KeyBlocked);
        let epoch = self.epoch;
        if let State::Delayed(due) = self.entry(seq).state {
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
            doomed,
        }
    }

    fn put_back(&mut self, seq: u64) {
        let entry = self.entry(seq);
        entry.in_flight = None;
        match entry.state {
            State::Ready => drop(self.ready.insert(seq)),
            State::Released => drop(self.released.insert(seq)),
            State::Delayed(due) => drop(self.delayed.insert((due, seq))),
            State::Blocked | State::Letter | State::Done => {}
        }
    }

    fn apply(&mut self, settlement: Settlement) {
        let Settlement { delivery, verdict, attempt } = settlement;
        let seq = delivery.receipt.seq;
        if delivery.receipt.epoch != self.epoch
            || self.entries.get(&seq).is_none_or(|entry| entry.in_flight != Some(delivery.receipt.at))
        {
            return;
        }
        // The delivery may know more than was stored: attempts that were made in place.
        if verdict != Verdict::Release {
            self.entry(seq).history = match &attempt {
                Some(attempt) => delivery.history.with(attempt),
                None => delivery.history,
            };
        }
        self.entry(seq).in_flight = None;
        match verdict {
            Verdict::Release => self.put_back(seq),
            Verdict::Done => {
                self.entry(seq).state = State::Done;
                self.leave_line(seq);
                if let Some(letter) = self.letters.get_mut(&seq) {
                    letter.state = LetterState::Succeeded;
                }
            }
            Verdict::Retry { due, meta } => {
                let entry = self.entry(seq);
                entry.meta = meta;
                entry.state = State::Delayed(due);
                entry.due = Some(due);
                self.delayed.insert((due, seq));
            }
            Verdict::Dead { reason, meta, at } => {
                let entry = self.entry(seq);
                entry.meta = meta;
                entry.state = State::Letter;
                let before = self.letters.remove(&seq);
                let (job, jobs) = before.map(|letter| (letter.job, letter.jobs)).unwrap_or_default();
                let letter = LetterEntry { state: LetterState::Open, reason, dead_at: at, job, jobs };
                self.letters.insert(seq, letter);
                self.leave_line(seq);
            }
        }
        self.line_moves(seq);
    }

    fn replay(&mut self, job: &ReplayJob, seq: u64) -> ReplayAnswer {
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
        entry.state = State::Delayed(job.due);
        entry.due = Some(job.due);
        self.delayed.insert((job.due, seq));
        self.join_line(seq);
        ReplayAnswer::Replayed
    }

    fn letter(&self, seq: u64) -> Option<Letter> {
        let letter = self.letters.get(&seq)?;
        let entry = &self.entries[&seq];
        Some(Letter {
            id: seq,
            state: letter.state,
            reason: letter.reason,
            dead_at: letter.dead_at,
            job: letter.job,
            message: entry.message.clone(),
            meta: entry.meta,
            history: entry.history.clone(),
        })
    }

    fn message(&self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        let Some(window) = self.options.dedup else { return Err(EngineError::NotRemembered) };
        let Some((seq, at)) = self.seen.get(id) else { return Ok(None) };
        let (entry, letter) = (&self.entries[seq], self.letters.get(seq));
        let waits = |phase| if letter.is_some() { MessagePhase::Replaying } else { phase };
        let mut due = None;
        let phase = match entry.state {
            _ if entry.in_flight.is_some() => MessagePhase::Delivering,
            State::Ready => waits(MessagePhase::Ready),
            State::Blocked | State::Released => waits(MessagePhase::KeyWait),
            State::Delayed(until) => {
                due = Some(until);
                waits(MessagePhase::Delayed)
            }
            State::Letter | State::Done => match letter {
                Some(letter) => letter.state.into(),
                None if now.since(*at) >= window => return Ok(None),
                None => return Ok(Some(MessageState::new(id, MessagePhase::Succeeded))),
            },
        };
        let told = MessageState::new(id, phase).told(&entry.meta, &entry.history);
        let (letter, reason) = (letter.map(|_| *seq), letter.map(|letter| letter.reason));
        Ok(Some(MessageState { due, letter, reason, ..told }))
    }

    fn letter_standing(&self, job: u64, seq: u64) -> Option<LetterStanding> {
        let letter = self.letters.get(&seq)?;
        Some(LetterStanding {
            state: letter.state,
            dead_at: letter.dead_at,
            replays: self.entries[&seq].meta.replays,
            in_job: letter.jobs.contains(&job),
            is_last_job: letter.job == Some(job),
        })
    }

    fn counts(&self) -> Counts {
        let count = |wanted: fn(&Entry) -> bool| self.entries.values().filter(|e| wanted(e)).count() as u64;
        let letters = |state| self.letters.values().filter(|letter| letter.state == state).count() as u64;
        Counts {
            ready: self.ready.len() as u64,
            delayed: self.delayed.len() as u64,
            key_wait: count(|e| matches!(e.state, State::Blocked | State::Released) && e.in_flight.is_none()),
            in_flight: count(|e| e.in_flight.is_some()),
            letters_open: letters(LetterState::Open),
            letters_replaying: letters(LetterState::Replaying),
            letters_succeeded: letters(LetterState::Succeeded),
            letters_discarded: letters(LetterState::Discarded),
        }
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
        // Nobody waiting for the answer is no reason not to accept.
        let _ = answer.send(Ok(accepted));
        if let Some(wake) = wake {
            wake();
        }
        receiver
    }
}

impl Engine for Memory {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.lock().take(now, room, out);
        Ok(())
    }

    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        let mut inner = self.lock();
        inner.next_ticket += 1;
        let ticket = Ticket(inner.next_ticket);
        inner.unsettled.push((ticket, batch));
        let wake = inner.wake.clone();
        drop(inner);
        // It is durable at the next poll, so there is something to hear.
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

    fn gate(&mut self, closed: bool) {
        self.lock().gated = closed;
    }

    fn counts(&self) -> Counts {
        self.lock().counts()
    }

    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        let inner = self.lock();
        let waits = |entry: &&Entry| !matches!(entry.state, State::Letter | State::Done);
        // Numbers are given in the order of acceptance.
        let pending = inner.entries.values().find(waits).map(|entry| entry.meta.created);
        let open = inner.letters.values().find(|letter| letter.state == LetterState::Open);
        Ok(Oldest {
            pending: pending.filter(|created| *created > Time::ZERO),
            letter: open.map(|letter| letter.dead_at),
        })
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        Some(Arc::new(MemoryIngest(self.clone())))
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.lock().wake = Some(wake);
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
        Ok(wanted.take(limit).filter_map(|(seq, _)| inner.letter(*seq)).collect())
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
        for (seq, letter) in inner.letters.range(from..) {
            if scan.letters.len() >= limit || scan.scanned >= look_max as u64 {
                return Ok(scan);
            }
            scan.scanned += 1;
            scan.next = Some(*seq);
            if state.is_none_or(|state| state == letter.state) {
                scan.letters.extend(inner.letter(*seq));
            }
        }
        Ok(LetterScan { next: None, ..scan })
    }

    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError> {
        Ok(self.lock().letter(id))
    }

    fn message(&mut self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        self.lock().message(id, now)
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        let inner = self.lock();
        Ok(ids.iter().map(|seq| inner.letter_standing(job, *seq)).collect())
    }

    fn replay(&mut self, job: &ReplayJob, ids: &[u64], _now: Time) -> Result<Vec<ReplayAnswer>, EngineError> {
        let mut inner = self.lock();
        Ok(ids.iter().map(|seq| inner.replay(job, *seq)).collect())
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        _now: Time,
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

    fn close(&mut self) -> Result<(), EngineError> {
        self.poll(&mut Vec::new())
    }
}
