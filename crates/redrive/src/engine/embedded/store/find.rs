//! Finds letters, and messages by id, in the tables. The id gives a message's number, and the places give where it
//! waits. Otherwise it is ready, in flight, a letter, or finished.

use std::time::Duration;

use redrive_core::Time;

use super::contents::{Content, Contents};
use super::in_flight::InFlight;
use super::key_gate::KeyGate;
use crate::engine::continued::ids_before;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::healing::Healing;
use crate::engine::embedded::index::tables::{IdSlot, IndexTables, Space, WaitLocation};
use crate::engine::embedded::state::book::Book;
use crate::engine::embedded::tuning::Tuning;
use crate::engine::letter::{LetterScan, LetterStanding, LetterState, SCAN_BYTES};
use crate::engine::message_state::{MessagePhase, MessageState};
use crate::engine::pending::PendingState;
use crate::engine::seam::{EngineError, StoreOptions};

/// If an id has more letters than this, the caller scans all letters instead, which is done in parts.
const LETTERS_OF_ID_MAX: usize = 1_000;

/// Answers queries about a store. Changes nothing.
#[derive(Debug)]
pub(crate) struct Lookup<'a, D: Disk, S> {
    pub(crate) options: &'a StoreOptions,
    pub(crate) tuning: Tuning,
    pub(crate) book: &'a Book<Healing<S>>,
    pub(crate) contents: &'a Contents<D>,
    pub(crate) in_flight: &'a InFlight,
    pub(crate) keys: &'a KeyGate,
    /// Data of messages below this number was lost, so one without a trace need not have succeeded.
    pub(crate) doubtful_below: u64,
}

impl<D: Disk, S: IndexTables> Lookup<'_, D, S> {
    pub(crate) fn find_message(&self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        let Some(window) = self.options.dedup else { return Err(EngineError::NotRemembered) };
        let found = self.book.ids().get(&id.as_bytes().to_vec(), &self.book.asked().table(Space::Ids))?;
        let Some(slot) = found else { return Ok(None) };
        let is_repeated = now.since(Time::from_millis(slot.at)) < window;
        let state = self.message_of(id, &slot, window, now)?;
        let duplicate_of = is_repeated.then_some(slot.seq);
        Ok(state.map(|state| MessageState { duplicate_of, ..state }))
    }

    fn message_of(
        &self,
        id: &str,
        slot: &IdSlot,
        window: Duration,
        now: Time,
    ) -> Result<Option<MessageState>, EngineError> {
        let seq = slot.seq;
        let letter = self.book.asked_letter(seq)?;
        let place = self.book.place_of(seq)?;
        let with_letter = |state: MessageState| MessageState {
            letter: letter.as_ref().map(|_| seq),
            reason: letter.as_ref().map(|letter| letter.reason),
            ..state
        };
        let found = |phase, content: Option<Content>| {
            let state = MessageState::new(id, phase);
            with_letter(match content {
                Some(content) => state.with_history(&content.meta, &content.history),
                None => state,
            })
        };
        if let Some(held) = self.in_flight.get(seq)
            && !self.in_flight.is_returned(seq)
        {
            let content = self.contents.at(place.map_or(held.pointer, |(_, pointer)| pointer))?;
            return Ok(Some(found(MessagePhase::InFlight, content)));
        }
        if let Some((place, pointer)) = place {
            let content = self.contents.at(pointer)?;
            let (mut phase, mut due) = match place {
                WaitLocation::Due(due) => {
                    (PendingState::timed(pointer.deferred).into(), Some(Time::from_millis(due)))
                }
                WaitLocation::Line(_) => (MessagePhase::KeyWait, None),
            };
            if self.keys.is_passed(seq) {
                (phase, due) = (MessagePhase::KeyWait, None);
            }
            if letter.is_some() {
                phase = MessagePhase::Replaying;
            }
            return Ok(Some(MessageState { due, ..found(phase, content) }));
        }
        if let Some(letter) = &letter {
            let shown = self.contents.letter(seq, letter, &self.options.grouping)?;
            let state = MessageState::new(id, letter.state.into());
            return Ok(Some(with_letter(state.with_history(&shown.meta, &shown.history))));
        }
        if !self.book.departed().contains(seq) {
            let passed = self.keys.is_passed(seq);
            let phase = if passed { MessagePhase::KeyWait } else { MessagePhase::Ready };
            let deadline = slot.deadline.map(Time::from_millis);
            return Ok(Some(MessageState { deadline, ..MessageState::new(id, phase) }));
        }
        // It left no trace, so it was delivered, or was a letter that was resolved and purged. Delivery is certain only
        // as long as no letter of it can have been purged.
        let since_accepted = now.since(Time::from_millis(slot.at));
        let certain = since_accepted < window.min(self.tuning.resolved_retention);
        // If data was lost, the trace may have been in it.
        let phase = if seq < self.doubtful_below { MessagePhase::Unknown } else { MessagePhase::Succeeded };
        Ok(certain.then(|| MessageState::new(id, phase)))
    }

    /// Looks at letters in the order of their numbers; reads only those that are wanted.
    pub(crate) fn look_at_letters(
        &self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        let mut scan = LetterScan { next: after, ..LetterScan::default() };
        let Some(from) = after.map_or(Some(0), |id| id.checked_add(1)) else {
            return Ok(LetterScan::default());
        };
        let slots = self.book.letters().range(from, look_max, self.book.asked())?;
        let at_the_end = slots.len() < look_max;
        let mut bytes = 0;
        for (seq, slot) in slots {
            if scan.letters.len() >= limit || bytes >= SCAN_BYTES {
                return Ok(scan);
            }
            scan.scanned += 1;
            scan.next = Some(seq);
            if state.is_none_or(|state| state == slot.state) {
                let letter = self.contents.letter(seq, &slot, &self.options.grouping)?;
                bytes += letter.size();
                scan.letters.push(letter);
            }
        }
        Ok(if at_the_end { LetterScan { next: None, ..scan } } else { scan })
    }

    /// The letters of messages that have this id or were accepted under it, or under an id with the same hash; `None`
    /// if there are too many.
    pub(crate) fn find_letters_of(&self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        let mut found = Vec::new();
        for id in std::iter::once(id).chain(ids_before(id)) {
            let hash = self.book.hash_of_key(id.as_bytes());
            found.extend(self.book.letters().with_id_hash(hash, LETTERS_OF_ID_MAX + 1, self.book.asked())?);
        }
        found.sort_unstable();
        found.dedup();
        Ok((found.len() <= LETTERS_OF_ID_MAX).then_some(found))
    }

    /// The state of letters with regard to a job, from the tables alone.
    pub(crate) fn letters_in_job(
        &self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        let standing = |seq: &u64| {
            Ok(self.book.asked_letter(*seq)?.map(|slot| LetterStanding {
                state: slot.state,
                dead_at: slot.dead_at,
                replays: slot.replays,
                in_job: slot.jobs.contains(&job),
                is_last_job: slot.jobs.last() == Some(&job),
            }))
        };
        ids.iter().map(standing).collect()
    }
}
