//! Folding the journal into the book, frame by frame.

use redrive_core::{Message, Reason, Time};

use super::book::{Book, Folded};
use crate::engine::completion::CompletionSet;
use crate::engine::delay::DelayKey;
use crate::engine::embedded::index::tables::{
    IdSlot, IndexError, IndexTables, LetterSlot, LineSlot, Pointer, Reading, Space, WaitLocation,
};
use crate::engine::embedded::journal::frame::{Frame, frame_len};
use crate::engine::embedded::journal::record::{
    AcceptedBody, Blocked, Ended, FLAG_BLOCKED, LetterChanged, LetterMoved, Seen, SlotCopy, Stored, Was,
    get_seqs, kind,
};
use crate::engine::letter::LetterState;

impl<S: IndexTables> Book<S> {
    /// Folds one frame of the journal.
    pub fn fold(&mut self, frame: &Frame, folded: &mut impl FnMut(Folded)) -> Result<(), IndexError> {
        self.position = frame.end();
        let pointer = Pointer::new(frame.position, frame_len(frame.body.len()) as u32);
        match frame.kind {
            kind::ACCEPTED => {
                self.accepted(frame, pointer);
                Ok(())
            }
            kind::DONE => {
                for seq in get_seqs(&frame.body) {
                    self.departed.insert(seq);
                    folded(Folded::Settled(seq));
                }
                Ok(())
            }
            kind::ENDED => {
                for ended in Ended::read_all(&frame.body) {
                    self.ended(&ended, folded)?;
                }
                Ok(())
            }
            kind::WAITING => match Stored::read(frame.body.clone()) {
                Some(stored) => self.waiting(frame.tag, &stored, pointer, folded),
                None => Ok(()),
            },
            kind::DEAD => match Stored::read(frame.body.clone()) {
                Some(stored) => self.dead(frame.tag, &stored, pointer, folded),
                None => Ok(()),
            },
            kind::BLOCKED => {
                for blocked in Blocked::read_all(&frame.body) {
                    self.block(&blocked, folded)?;
                }
                Ok(())
            }
            kind::MOVED => match Stored::read(frame.body.clone()) {
                Some(stored) => self.moved(frame.tag, frame.flags, &stored, pointer),
                None => Ok(()),
            },
            kind::LETTER_STATE => match LetterChanged::read(frame.body.clone()) {
                Some(changed) => changed.seqs.iter().try_for_each(|seq| self.set_letter(*seq, changed.state)),
                None => Ok(()),
            },
            kind::LETTER_MOVED => {
                for moved in LetterMoved::read_all(&frame.body) {
                    self.letter_moved(&moved)?;
                }
                Ok(())
            }
            kind::PURGED => get_seqs(&frame.body).try_for_each(|seq| self.purged(seq)),
            kind::SEEN => {
                for seen in Seen::read_all(frame.body.clone()) {
                    self.seen(&seen)?;
                }
                Ok(())
            }
            // This format version has no other kinds, and stores of newer versions have been refused.
            _ => Ok(()),
        }
    }

    fn accepted(&mut self, frame: &Frame, pointer: Pointer) {
        let seq = frame.tag;
        self.next_seq = self.next_seq.max(seq + 1);
        let Some(body) = AcceptedBody::read(frame.body.clone()) else { return };
        self.latest = self.latest.max(body.at);
        if let Some(due) = body.due {
            self.departed.insert(seq);
            self.delay.put((due, seq), pointer);
            self.waits_at(seq, WaitLocation::Due(due));
            self.live.add(pointer);
        }
        if self.options.dedup.is_some()
            && let Ok(message) = Message::from_wire(body.wire)
        {
            let deadline = message.deadline().map(Time::as_millis);
            self.see(message.id().as_bytes().to_vec(), IdSlot { seq, at: body.at, deadline });
        }
    }

    /// An id that the cleaner copied forward. A running store knows it already: its first frame was folded, and it was
    /// copied because it has not expired. Looking it up would cost a table read for each id. When the journal is read
    /// from disk, the first frame may be gone with its segment.
    fn seen(&mut self, seen: &Seen) -> Result<(), IndexError> {
        if !self.catching_up {
            return Ok(());
        }
        let id = seen.id.to_vec();
        let known = self.ids.get(&id, &self.table(Space::Ids))?;
        if known.is_none_or(|slot| slot.seq < seen.seq) {
            // Its segment is dropped only after the message has left the ready state.
            self.see(id, IdSlot { seq: seen.seq, at: seen.at, deadline: None });
        }
        Ok(())
    }

    fn see(&mut self, id: Vec<u8>, slot: IdSlot) {
        if self.options.dedup.is_some() {
            self.ids.set(id, slot);
        }
    }

    /// Records that a message which did not wait yet now waits here.
    fn waits_at(&mut self, seq: u64, place: WaitLocation) {
        if self.options.dedup.is_none() {
            return;
        }
        if self.damaged {
            // The frame with the end of its last wait may be lost.
            self.places.set(seq, place);
        } else {
            self.places.put(seq, place);
        }
    }

    fn waits_no_more(&mut self, seq: u64) {
        if self.options.dedup.is_some() {
            self.places.remove(&seq);
        }
    }

    fn ended(&mut self, ended: &Ended, folded: &mut impl FnMut(Folded)) -> Result<(), IndexError> {
        self.leave_state(ended.seq, ended.was, ended.key)?;
        self.leave_line(ended.seq, ended.key, folded);
        if ended.letter {
            self.set_letter(ended.seq, LetterState::Succeeded)?;
        }
        folded(Folded::Settled(ended.seq));
        Ok(())
    }

    fn waiting(
        &mut self,
        seq: u64,
        stored: &Stored,
        pointer: Pointer,
        folded: &mut impl FnMut(Folded),
    ) -> Result<(), IndexError> {
        self.leave_state(seq, stored.was, stored.key)?;
        let due = stored.due.unwrap_or(0);
        self.delay_until((due, seq), Pointer { deferred: stored.meta.deferred, ..pointer });
        self.waits_at(seq, WaitLocation::Due(due));
        self.live.add(pointer);
        if let Some(key) = stored.key {
            self.lines.set((key, seq), LineSlot::Delayed);
        }
        if let Some(hash) = stored.key {
            folded(Folded::LineMoved(hash));
        }
        if stored.was == Was::Letter {
            self.set_letter(seq, LetterState::Replaying)?;
            let replays = (stored.meta.replays, stored.jobs.clone());
            self.letters.set_replays(seq, replays, Reading::patiently(&*self.tables))?;
        } else {
            folded(Folded::Settled(seq));
        }
        Ok(())
    }

    fn block(&mut self, blocked: &Blocked, folded: &mut impl FnMut(Folded)) -> Result<(), IndexError> {
        // The cleaner may have moved it since it was passed over.
        let now_at = self.leave_state(blocked.seq, blocked.was, Some(blocked.key))?;
        let pointer = now_at.map_or((blocked.at, blocked.len), |now_at| (now_at.at, now_at.len));
        let pointer = Pointer::new(pointer.0, pointer.1);
        let hash = blocked.key;
        self.lines.set((hash, blocked.seq), LineSlot::Blocked(pointer));
        self.waits_at(blocked.seq, WaitLocation::Line(hash));
        self.live.add(pointer);
        self.blocked += 1;
        folded(Folded::InLine { seq: blocked.seq, hash });
        Ok(())
    }

    /// Records that a message waits for its due time.
    fn delay_until(&mut self, key: DelayKey, pointer: Pointer) {
        self.delay.put(key, pointer);
        self.held += u64::from(pointer.deferred);
    }

    /// Ends the wait of a message for its due time. Returns where its content is, if it did wait.
    fn delay_over(&mut self, key: DelayKey) -> Result<Option<Pointer>, IndexError> {
        let table = Reading::patiently(&*self.tables).table(Space::Delay);
        let pointer = self.delay.remove(&key, &table)?;
        let was_held = pointer.is_some_and(|pointer| pointer.deferred);
        self.held = self.held.saturating_sub(u64::from(was_held));
        Ok(pointer)
    }

    /// Removes the message from its current state, whatever the next one. Returns where its content is, if it waited.
    fn leave_state(&mut self, seq: u64, was: Was, key: Option<u64>) -> Result<Option<Pointer>, IndexError> {
        // It is certainly not ready any more, even if the frame that said so is damaged.
        self.departed.insert(seq);
        if matches!(was, Was::Waiting { .. } | Was::Blocked) {
            self.waits_no_more(seq);
        }
        let pointer = match was {
            Was::Fresh | Was::Letter => None,
            Was::Waiting { due } => self.delay_over((due, seq))?,
            Was::Blocked => {
                self.blocked_at(seq, key)?.inspect(|_| self.blocked = self.blocked.saturating_sub(1))
            }
        };
        match pointer {
            Some(pointer) => self.live.sub(pointer),
            None if self.damaged && was != Was::Fresh => self.forget_strays(seq, key)?,
            None => {}
        }
        Ok(pointer)
    }

    fn blocked_at(&self, seq: u64, key: Option<u64>) -> Result<Option<Pointer>, IndexError> {
        let Some(hash) = key else { return Ok(None) };
        match self.lines.get(&(hash, seq), &self.table(Space::Lines))? {
            Some(LineSlot::Blocked(pointer)) => Ok(Some(pointer)),
            Some(LineSlot::Delayed) | None => Ok(None),
        }
    }

    /// Removes a message from where it waited before, if the frame that moved it is damaged: it must not wait twice.
    fn forget_strays(&mut self, seq: u64, key: Option<u64>) -> Result<(), IndexError> {
        let table = Reading::patiently(&*self.tables).table(Space::Delay);
        for (entry, pointer) in self.delay.dump(&table)?.into_iter().filter(|(entry, _)| entry.1 == seq) {
            self.delay_over(entry)?;
            self.live.sub(pointer);
        }
        if let (Some(hash), Some(pointer)) = (key, self.blocked_at(seq, key)?) {
            self.lines.remove(&(hash, seq));
            self.live.sub(pointer);
            self.blocked = self.blocked.saturating_sub(1);
        }
        Ok(())
    }

    fn leave_line(&mut self, seq: u64, key: Option<u64>, folded: &mut impl FnMut(Folded)) {
        if let Some(hash) = key {
            self.lines.remove(&(hash, seq));
            folded(Folded::LineMoved(hash));
        }
    }

    /// Folds the cleaner's copy of a waiting message. It is written only while the message waits
    /// (`Store::still_waits`), so if the original frame is gone in a rebuild, the copy takes its place.
    fn moved(&mut self, seq: u64, flags: u8, stored: &Stored, pointer: Pointer) -> Result<(), IndexError> {
        if flags & FLAG_BLOCKED != 0 {
            let Some(hash) = stored.key else { return Ok(()) };
            let key = (hash, seq);
            match self.lines.get(&key, &self.table(Space::Lines))? {
                Some(LineSlot::Blocked(old)) => self.live.sub(old),
                Some(LineSlot::Delayed) | None => self.blocked += 1,
            }
            self.lines.set(key, LineSlot::Blocked(pointer));
            self.moved_place(seq, WaitLocation::Line(hash));
        } else {
            let key = (stored.due.unwrap_or(0), seq);
            let pointer = Pointer { deferred: stored.meta.deferred, ..pointer };
            self.moved_place(seq, WaitLocation::Due(key.0));
            match self.delay.get(&key, &self.table(Space::Delay))? {
                Some(old) => {
                    self.delay.repoint(key, pointer);
                    self.live.sub(old);
                }
                None => self.delay_until(key, pointer),
            }
            if let Some(hash) = stored.key {
                self.lines.set((hash, seq), LineSlot::Delayed);
            }
        }
        self.live.add(pointer);
        Ok(())
    }

    /// Records the place of a moved message. It is known already, except in a rebuild if the original frame is gone.
    fn moved_place(&mut self, seq: u64, place: WaitLocation) {
        if self.options.dedup.is_some() {
            self.places.set(seq, place);
        }
    }

    fn dead(
        &mut self,
        seq: u64,
        stored: &Stored,
        pointer: Pointer,
        folded: &mut impl FnMut(Folded),
    ) -> Result<(), IndexError> {
        // An imported letter has no other frame with its number.
        self.next_seq = self.next_seq.max(seq + 1);
        self.leave_state(seq, stored.was, stored.key)?;
        self.leave_line(seq, stored.key, folded);
        // Even for a first death: a crash may have left a copy in the letter log that the journal does not mention.
        let before = self.letters.replace(seq, Reading::patiently(&*self.tables))?;
        before.inspect(|(pointer, _)| self.live.sub(*pointer));
        // Any other stored state is from the copy that the letter was made from.
        let erased = stored.state.filter(|state| *state == LetterState::Erased);
        let state = erased.unwrap_or(LetterState::Open);
        self.put_letter(seq, stored, state, pointer, before.map(|(_, dead_at)| dead_at));
        folded(Folded::Settled(seq));
        Ok(())
    }

    /// `before` is the time of death of the letter that this one replaces.
    fn put_letter(
        &mut self,
        seq: u64,
        stored: &Stored,
        state: LetterState,
        pointer: Pointer,
        before: Option<Time>,
    ) {
        let reason = stored.reason.unwrap_or(Reason::Corrupt);
        let slot = LetterSlot {
            pointer,
            state,
            reason,
            dead_at: Time::from_millis(stored.dead_at),
            replays: stored.meta.replays,
            jobs: stored.jobs.clone(),
            key: stored.key,
            // The hash of the id it was accepted under, which is stable: an edit may change the id, and an undo may
            // restore it.
            id_hash: self.id_hash_of(stored.replaced.first().map_or(&stored.wire, |first| &first.wire)),
            group: stored.fingerprint(&self.options.grouping, reason).group.number(),
            edits: stored.replaced.len() as u8,
        };
        self.live.add(pointer);
        self.letters.insert(seq, slot, before);
    }

    fn set_letter(&mut self, seq: u64, state: LetterState) -> Result<(), IndexError> {
        self.letters.set_state(seq, state, Reading::patiently(&*self.tables))
    }

    fn letter_moved(&mut self, moved: &LetterMoved) -> Result<(), IndexError> {
        let to = Pointer::new(moved.to, moved.len);
        let reading = Reading::patiently(&*self.tables);
        if let Some(before) = self.letters.repoint(moved.seq, moved.from, to, reading)? {
            self.live.sub(before);
            self.live.add(to);
        }
        Ok(())
    }

    fn purged(&mut self, seq: u64) -> Result<(), IndexError> {
        let removed = self.letters.remove(seq, Reading::patiently(&*self.tables))?;
        removed.inspect(|pointer| self.live.sub(*pointer));
        Ok(())
    }

    /// Folds one frame of the letter log in a rebuild. It comes before the journal, whose frames have the later states
    /// of these letters.
    pub fn fold_letter(&mut self, frame: &Frame, at: u64) -> Result<(), IndexError> {
        let pointer = Pointer::new(at, frame_len(frame.body.len()) as u32);
        let seq = frame.tag;
        match frame.kind {
            kind::DEAD => {
                let Some(stored) = Stored::read(frame.body.clone()) else { return Ok(()) };
                self.purged(seq)?;
                self.put_letter(seq, &stored, stored.state.unwrap_or(LetterState::Open), pointer, None);
                Ok(())
            }
            kind::LETTER_SLOT => {
                let Some(copy) = SlotCopy::read(frame.body.clone()) else { return Ok(()) };
                self.set_letter(seq, copy.state)?;
                let replays = (copy.replays, copy.jobs);
                self.letters.set_replays(seq, replays, Reading::patiently(&*self.tables))
            }
            kind::PURGED => self.purged(seq),
            _ => Ok(()),
        }
    }

    /// Starts at a position of the journal, with nothing folded.
    pub fn begin_at(&mut self, position: u64) {
        self.position = position;
    }

    /// Declares this message the first in the journal: all before it are finished.
    pub fn begin_with(&mut self, seq: u64) {
        self.departed = CompletionSet::starting_at(seq);
    }

    /// Reserves the numbers below this one, whether or not the journal still has their messages.
    pub fn reserve_numbers(&mut self, next_seq: u64) {
        self.next_seq = self.next_seq.max(next_seq);
    }

    /// Records that the journal has been read up to here, even if there was nothing to fold.
    pub fn followed_to(&mut self, position: u64) {
        self.position = position;
    }

    /// Sets whether the journal is being read from disk.
    pub fn set_catching_up(&mut self, catching_up: bool) {
        self.catching_up = catching_up;
    }

    /// Sets whether the journal being folded has damaged frames.
    pub fn set_damaged(&mut self, damaged: bool) {
        self.damaged = damaged;
    }
}
