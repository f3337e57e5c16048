//! The querying part of the store.

use redrive_core::{GroupId, Message, Time};

use super::letters::edit;
use super::store::Store;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::IndexTables;
use crate::engine::groups::GroupFigures;
use crate::engine::letter::{Letter, LetterScan, LetterStanding, LetterState};
use crate::engine::message_state::KeyLine;
use crate::engine::message_state::MessageState;
use crate::engine::pending::{PendingAt, PendingScan, PendingState};
use crate::engine::seam::{Counts, EngineError, Oldest, Query};
use crate::engine::store_notice::Upkeep;

impl<D: Disk, S: IndexTables> Query for Store<D, S> {
    fn counts(&self) -> Counts {
        self.waiting.counts()
    }

    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        self.waiting.oldest()
    }

    fn upkeep(&self) -> Upkeep {
        let index_rebuilds = self.waiting.book.tables().rebuilds();
        self.scrubbed.add_to(Upkeep { index_rebuilds, ..Upkeep::default() })
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

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.lookup().letters_in_job(job, ids)
    }

    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError> {
        edit::message_before(&self.lookup(), id, edit)
    }

    fn groups(&mut self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        self.check()?;
        Ok(self.waiting.book.group_figures(now)?)
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
}
