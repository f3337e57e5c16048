//! The single writer of a store: it collects what is waiting, does one write and one sync, and answers all callers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive_core::{Meta, Time};
use tokio::sync::oneshot;

use super::command::{Closing, Command, Note, Relocation};
use super::mailbox::Mailbox;
use crate::engine::embedded::directory::unusable::stopped;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IdSlot, IndexError, IndexTables, OnRebuild, Space, Table};
use crate::engine::embedded::journal::batch::{Batch, Written};
use crate::engine::embedded::journal::log::{Log, LogError};
use crate::engine::embedded::journal::record::{
    AcceptedBody, Blocked, Ended, LetterMoved, Seen, Stored, kind, put_seqs,
};
use crate::engine::embedded::journal::watermark::{self, Watermark, WatermarkState};
use crate::engine::ingest::{Accepted, IngestAnswer, IngestError, NewMessage};
use crate::engine::overlay::Far;
use crate::engine::seam::{EngineError, Ticket, Verdict};

/// Set in positions of the letter log, to tell them from positions of the journal.
pub const LETTER_LOG: u64 = 1 << 63;

/// A batch is closed when it reaches this size.
const BATCH_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of entries in one frame; a longer list is split.
const LIST_MAX: usize = 64 * 1024;
/// How long the writer waits for more work before it marks the last batch as durable.
const IDLE: Duration = Duration::from_millis(5);
/// How long the watermark may stay unsynced while there is work.
const SYNC_AFTER: Duration = Duration::from_secs(1);
/// How often an idle writer checks that its files are still its own.
const LOOK_AFTER: Duration = Duration::from_secs(10);

pub struct Writer<D: Disk, S> {
    pub disk: D,
    pub journal: Log<D>,
    pub letters: Log<D>,
    pub tables: Arc<S>,
    /// How long ids are remembered.
    pub dedup: Option<Duration>,
    /// Ids of the latest messages, which the tables do not hold yet.
    pub recent: HashMap<Box<str>, IdSlot>,
    pub next_seq: u64,
    /// Below this much free space no messages are accepted.
    pub reserve_bytes: u64,
    pub watermark: Watermark<D::File>,
}

impl<D: Disk, S> std::fmt::Debug for Writer<D, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("next_seq", &self.next_seq).finish_non_exhaustive()
    }
}

/// Makes sure that no caller waits forever, however the writer ends: commands it did not get to are dropped, and the
/// answers with them.
struct WriterEnd<'a> {
    commands: &'a Mailbox<Command>,
    notes: &'a Mailbox<Note>,
    wake: &'a dyn Fn(),
}

impl Drop for WriterEnd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.notes.post(Note::Failed(EngineError::Storage("the writer has panicked".into())), 0);
        }
        self.commands.close();
        drop(self.commands.drain());
        self.notes.close();
        (self.wake)();
    }
}

type Answers = Vec<(oneshot::Sender<IngestAnswer>, IngestAnswer)>;

impl<D: Disk, S: IndexTables> Writer<D, S> {
    /// Runs until the mailbox is closed or the disk fails, then records a clean end if it can.
    pub fn run(mut self, commands: &Mailbox<Command>, notes: &Mailbox<Note>, wake: &dyn Fn()) {
        let _end = WriterEnd { commands, notes, wake };
        let mut marked = true;
        let mut synced = Instant::now();
        loop {
            let on_rebuild = match (marked, self.watermark.is_unsynced()) {
                (false, _) => IDLE,
                (true, true) => SYNC_AFTER,
                (true, false) => LOOK_AFTER,
            };
            let Some(arrived) = commands.wait(Some(on_rebuild)) else { break };
            let mut result = if !arrived.is_empty() {
                marked = false;
                self.commit_all(arrived, &mut |note| note.leave(notes))
            } else if marked {
                self.check_owner().and_then(|()| self.journal.check_file())
            } else {
                marked = true;
                self.journal.mark()
            };
            if result.is_ok() && self.watermark.is_unsynced() && synced.elapsed() >= SYNC_AFTER {
                result = self.sync_watermark();
                synced = Instant::now();
            }
            if let Err(error) = result {
                notes.post(Note::Failed(stopped(&error)), 0);
                return;
            }
            wake();
        }
        if let Err(error) = self.close() {
            notes.post(Note::Failed(stopped(&error)), 0);
        }
    }

    /// Records a clean end.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.journal.close()?;
        self.letters.close()?;
        let published = self.watermark_state();
        self.watermark.close(published).map_err(LogError::io("writing", watermark::NAME))
    }

    /// The positions up to which the logs are durable now.
    fn watermark_state(&self) -> WatermarkState {
        let (journal, letters) = (self.journal.extent(), self.letters.extent());
        WatermarkState { journal, letters, next_seq: self.next_seq, ..self.watermark.state() }
    }

    /// Publishes outside of the logs how far they are durable.
    fn publish_watermark(&mut self) -> Result<(), LogError> {
        let (before, now) = (self.watermark.state(), self.watermark_state());
        self.watermark.note(now).map_err(LogError::io("writing", watermark::NAME))?;
        // If segments came or went, or letters were moved, a power failure must not undo the watermark.
        let rolled = self.journal.last_base() >= before.journal.end;
        if rolled || before.letters != now.letters || before.journal.start != now.journal.start {
            self.sync_watermark()?;
        }
        Ok(())
    }

    /// Fails if another process has written the watermark, so that the writer stops before it overwrites anything.
    fn check_owner(&self) -> Result<(), LogError> {
        let name = watermark::NAME;
        if self.watermark.is_ours().map_err(LogError::io("reading", name))? {
            return Ok(());
        }
        Err(LogError::Disturbed { name: name.into(), how: "written".into() })
    }

    fn sync_watermark(&mut self) -> Result<(), LogError> {
        self.watermark.sync().map_err(LogError::io("syncing", watermark::NAME))
    }

    /// Commits commands in as many batches as their size requires.
    pub fn commit_all(
        &mut self,
        commands: Vec<Command>,
        note: &mut impl FnMut(Note),
    ) -> Result<(), LogError> {
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            self.commit(&mut commands, note)?;
        }
        Ok(())
    }

    fn commit(
        &mut self,
        commands: &mut impl Iterator<Item = Command>,
        note: &mut impl FnMut(Note),
    ) -> Result<(), LogError> {
        let mut batch = self.journal.batch()?;
        let mut answers = Answers::new();
        let mut ticket = None;
        // With deduplication, the owner reads the ids from the frames.
        let mut fresh = self.dedup.is_none();
        let full = batch.start() + BATCH_BYTES_MAX;
        while batch.end() < full
            && let Some(command) = commands.next()
        {
            fresh &= command.is_fresh();
            match command {
                Command::Ingest { batch: new, now, answer } => {
                    let answered = self.ingest(&mut batch, new, now);
                    answers.push((answer, answered));
                }
                Command::Settle { ticket: given, done, closings } => {
                    settle(&mut batch, &done, closings);
                    ticket = Some(given);
                }
                Command::Block(blocked) => block(&mut batch, &blocked),
                Command::Replay { ticket: given, letters } => {
                    for (seq, stored) in letters {
                        push_stored(&mut batch, kind::WAITING, seq, &stored);
                    }
                    ticket = Some(given);
                }
                Command::EditLetters { ticket: given, letters } => {
                    for (seq, stored) in letters {
                        push_stored(&mut batch, kind::DEAD, seq, &stored);
                    }
                    ticket = Some(given);
                }
                Command::ChangeLetters { ticket: given, changed } => {
                    batch
                        .push(kind::LETTER_STATE, 0, 0, changed.seqs.len() * 8 + 1, |buf| changed.write(buf));
                    ticket = Some(given);
                }
                Command::Import { ticket: given, letters, first } => {
                    let numbered = self.check_room().map(|()| self.import(&mut batch, &letters));
                    // Only this thread sets it.
                    let _ = first.set(numbered);
                    ticket = Some(given);
                }
                Command::Relocate { ticket: given, relocation } => {
                    self.relocate(&mut batch, &relocation)?;
                    ticket = Some(given);
                }
                Command::Drop { journal, letters } => {
                    // Segments are dropped only between batches; the note keeps the order with earlier batches.
                    self.finish(batch, answers, (ticket, false), note)?;
                    if let Some(before) = journal {
                        self.journal.advance_start(before)?;
                    }
                    if let Some(before) = letters {
                        self.letters.advance_start(before)?;
                    }
                    return self.publish_watermark();
                }
                Command::ForgetIds { below } => self.recent.retain(|_, slot| slot.seq >= below),
            }
        }
        self.finish(batch, answers, (ticket, fresh), note)
    }

    /// Writes and syncs the batch, then notifies the owner of the store and, after it, the callers that wait for an
    /// answer.
    fn finish(
        &mut self,
        mut batch: Batch,
        answers: Answers,
        (ticket, fresh): (Option<Ticket>, bool),
        note: &mut impl FnMut(Note),
    ) -> Result<(), LogError> {
        let result = if batch.is_empty() {
            Ok(None)
        } else {
            batch.set_note(self.next_seq);
            self.make_durable(batch).map(Some)
        };
        let fresh_until = fresh.then_some(self.next_seq);
        let result = result.map(|written| note(Note::Committed { written, ticket, fresh_until }));
        for (answer, answered) in answers {
            let answered = match &result {
                Ok(()) => answered,
                Err(error) => Err(IngestError::Storage(error.to_string())),
            };
            // The batch is accepted even if the caller is gone.
            let _ = answer.send(answered);
        }
        result
    }

    fn make_durable(&mut self, batch: Batch) -> Result<Written, LogError> {
        self.check_owner()?;
        let written = self.journal.write(batch)?;
        self.journal.sync()?;
        self.publish_watermark()?;
        Ok(written)
    }

    fn ingest(&mut self, batch: &mut Batch, new: Vec<NewMessage>, now: Time) -> IngestAnswer {
        self.check_room()?;
        // All or nothing: everything that can fail does so before the first message is written.
        let known = self.known(&new)?;
        let mut accepted = Vec::with_capacity(new.len());
        for (NewMessage { message, due }, known) in new.into_iter().zip(known) {
            let seen = self.recent.get(message.id()).copied().or(known);
            if let Some(seq) = seen.filter(|slot| self.is_repeated(slot, now)).map(|slot| slot.seq) {
                accepted.push(Accepted::Duplicate { seq });
                continue;
            }
            let seq = self.next_seq;
            self.next_seq += 1;
            if self.dedup.is_some() {
                let deadline = message.deadline().map(Time::as_millis);
                self.recent.insert(message.id().into(), IdSlot { seq, at: now.as_millis(), deadline });
            }
            let wire = message.wire();
            let len = AcceptedBody::FIXED_BYTES + wire.len();
            batch.push(kind::ACCEPTED, 0, seq, len, |buf| AcceptedBody::write(buf, due, now, wire));
            accepted.push(Accepted::New { seq });
        }
        Ok(accepted)
    }

    /// Checks that the disk has room for new messages.
    fn check_room(&self) -> Result<(), IngestError> {
        let free_bytes = self.disk.free_bytes().map_err(|error| IngestError::Storage(error.to_string()))?;
        if free_bytes < self.reserve_bytes {
            return Err(IngestError::DiskFull { free_bytes, reserve_bytes: self.reserve_bytes });
        }
        Ok(())
    }

    /// Writes each letter as one frame, so that a torn batch leaves complete letters and never a message that would be
    /// delivered. Returns the number of the first.
    fn import(&mut self, batch: &mut Batch, letters: &[Stored]) -> u64 {
        let first = self.next_seq;
        for stored in letters {
            push_stored(batch, kind::DEAD, self.next_seq, stored);
            self.next_seq += 1;
        }
        first
    }

    /// Looks up the ids of these messages in the tables.
    fn known(&self, new: &[NewMessage]) -> Result<Vec<Option<IdSlot>>, IngestError> {
        if self.dedup.is_none() {
            return Ok(vec![None; new.len()]);
        }
        let table = Table { tables: &*self.tables, space: Space::Ids, on_rebuild: OnRebuild::Ask };
        let look = |new: &NewMessage| {
            let id = new.message.id().as_bytes().to_vec();
            Far::<Vec<u8>, IdSlot>::get(&table, &id).map_err(|error| match error {
                // Settling must go on, so the writer does not wait for the tables.
                IndexError::Rebuilding => IngestError::Busy,
                error => IngestError::Storage(error.to_string()),
            })
        };
        new.iter().map(look).collect()
    }

    fn is_repeated(&self, slot: &IdSlot, now: Time) -> bool {
        self.dedup.is_some_and(|window| now.since(Time::from_millis(slot.at)) < window)
    }

    /// Copies letters to the letter log. They are durable there before the journal refers to them.
    fn relocate(&mut self, batch: &mut Batch, relocation: &Relocation) -> Result<(), LogError> {
        let mut moved = Vec::with_capacity(relocation.letters.len());
        if !relocation.letters.is_empty() || !relocation.slots.is_empty() {
            let mut letters = self.letters.batch()?;
            for (seq, stored, from) in &relocation.letters {
                let at = push_stored(&mut letters, kind::DEAD, *seq, stored);
                let len = (letters.end() - at) as u32;
                moved.push(LetterMoved { seq: *seq, from: *from, to: at | LETTER_LOG, len });
            }
            for (seq, slot) in &relocation.slots {
                match slot {
                    Some(slot) => {
                        letters.push(kind::LETTER_SLOT, 0, *seq, slot.len_hint(), |buf| slot.write(buf))
                    }
                    None => letters.push(kind::PURGED, 0, *seq, 0, |_| {}),
                };
            }
            self.letters.write(letters)?;
            self.letters.sync()?;
            self.letters.mark()?;
            let published = self.watermark.state();
            let letters_moved = published.letters_moved + relocation.letters.len() as u64;
            let moved = WatermarkState { letters_moved, ..published };
            self.watermark.note(moved).map_err(LogError::io("writing", watermark::NAME))?;
        }
        for (flags, seq, stored) in &relocation.moves {
            batch.push(kind::MOVED, *flags, *seq, stored.len_hint(), |buf| stored.write(buf));
        }
        for part in moved.chunks(LIST_MAX) {
            batch.push(kind::LETTER_MOVED, 0, 0, part.len() * 28, |buf| {
                part.iter().for_each(|m| m.write(buf));
            });
        }
        for part in relocation.seen.chunks(LIST_MAX) {
            let len = part.iter().map(|seen: &Seen| 18 + seen.id.len()).sum();
            batch.push(kind::SEEN, 0, 0, len, |buf| part.iter().for_each(|seen| seen.write(buf)));
        }
        for part in relocation.purge.chunks(LIST_MAX) {
            batch.push(kind::PURGED, 0, 0, part.len() * 8, |buf| put_seqs(buf, part));
        }
        Ok(())
    }
}

fn settle(batch: &mut Batch, done: &[u64], closings: Vec<Closing>) {
    for part in done.chunks(LIST_MAX) {
        batch.push(kind::DONE, 0, 0, part.len() * 8, |buf| put_seqs(buf, part));
    }
    let mut ended = Vec::new();
    for closing in closings {
        let Closing { delivery, verdict, attempt, was, key, jobs, group, options, replaced } = closing;
        let seq = delivery.receipt.seq;
        let history = match &attempt {
            Some(attempt) => delivery.history.with(attempt),
            None => delivery.history,
        };
        let stored = |meta: Meta| Stored {
            was,
            key,
            due: None,
            jobs: jobs.clone(),
            reason: None,
            state: None,
            dead_at: 0,
            moved_from: 0,
            meta,
            history: history.raw().clone(),
            group: None,
            options: None,
            replaced: Vec::new(),
            wire: delivery.message.wire().clone(),
        };
        match verdict {
            Verdict::Done => ended.push(Ended { seq, was, key, letter: delivery.meta.replays > 0 }),
            Verdict::Retry { due, meta } => {
                let waiting = Stored { due: Some(due.as_millis()), ..stored(meta) };
                push_stored(batch, kind::WAITING, seq, &waiting);
            }
            Verdict::Dead { reason, meta, at } => {
                let (reason, dead_at) = (Some(reason), at.as_millis());
                let dead = Stored { reason, dead_at, group, options, replaced, ..stored(meta) };
                push_stored(batch, kind::DEAD, seq, &dead);
            }
            Verdict::Release => {}
        }
    }
    for part in ended.chunks(LIST_MAX) {
        batch.push(kind::ENDED, 0, 0, part.len() * Ended::BYTES, |buf| {
            part.iter().for_each(|ended| ended.write(buf));
        });
    }
}

fn block(batch: &mut Batch, blocked: &[Blocked]) {
    for part in blocked.chunks(LIST_MAX) {
        batch.push(kind::BLOCKED, 0, 0, part.len() * Blocked::BYTES, |buf| {
            part.iter().for_each(|b| b.write(buf));
        });
    }
}

fn push_stored(batch: &mut Batch, kind: u8, seq: u64, stored: &Stored) -> u64 {
    batch.push(kind, 0, seq, stored.len_hint(), |buf| stored.write(buf))
}
