//! Finds the line of a key in the tables, for operators who ask why a key makes no progress.

use std::collections::BTreeSet;

use redrive_core::Time;

use super::find::Lookup;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, Space, WaitLocation};
use crate::engine::embedded::state::lines::LineKey;
use crate::engine::message_state::{KeyLine, WAITING_MAX};
use crate::engine::message_state::{MessagePhase, MessageState};
use crate::engine::seam::{AfterDead, DeliveryOrder, EngineError};

/// How many slots are read at once.
const READ_AT_ONCE: usize = 1024;

impl<D: Disk, S: IndexTables> Lookup<'_, D, S> {
    pub(crate) fn find_key_line(&self, key: &[u8]) -> Result<Option<KeyLine>, EngineError> {
        if self.options.ordering == DeliveryOrder::None {
            return Ok(None);
        }
        // The places of waiting messages are stored only if ids are remembered.
        if self.options.dedup.is_none() {
            return Err(EngineError::NotRemembered);
        }
        let hash = self.book.hash_of_key(key);
        let line = self.line_of(hash)?;
        let letters = self.blocking_letters(hash)?;
        let behind =
            |ahead: usize| (line.len() + letters.len()).saturating_sub(ahead).min(WAITING_MAX) as u64;
        let running = self.keys.running(hash);
        let first = running.or_else(|| line.first().copied());
        if let Some(letter) = letters.first().filter(|letter| first.is_none_or(|first| **letter < first))
            && let Some(slot) = self.book.asked_letter(*letter)?
        {
            let shown = self.contents.letter(*letter, &slot, &self.options.grouping)?;
            let head = MessageState::new(shown.message.id(), MessagePhase::Dead);
            let head = MessageState {
                letter: Some(*letter),
                reason: Some(slot.reason),
                ..head.with_history(&shown.meta, &shown.history)
            };
            return Ok(Some(KeyLine { head, waiting: behind(1) }));
        }
        let Some(first) = first else { return Ok(None) };
        let ahead = usize::from(line.contains(&first));
        Ok(self.head(first)?.map(|head| KeyLine { head, waiting: behind(ahead) }))
    }

    /// The message that all others of its key wait for; `None` if it is unreadable, or still being written.
    fn head(&self, seq: u64) -> Result<Option<MessageState>, EngineError> {
        let place = self.book.place_of(seq)?;
        let held = self.in_flight.get(seq);
        let Some(pointer) = place.map(|(_, pointer)| pointer).or(held.map(|held| held.pointer)) else {
            return Ok(None);
        };
        let Some(content) = self.contents.at(pointer)? else { return Ok(None) };
        let (phase, due) = match place {
            _ if held.is_some() => (MessagePhase::InFlight, None),
            Some((WaitLocation::Due(due), _)) => (MessagePhase::Delayed, Some(Time::from_millis(due))),
            _ => (MessagePhase::Ready, None),
        };
        let head =
            MessageState::new(content.message.id(), phase).with_history(&content.meta, &content.history);
        Ok(Some(MessageState { due, ..head }))
    }

    /// The numbers of the messages in a key's line, including those about to be added.
    fn line_of(&self, hash: u64) -> Result<BTreeSet<u64>, EngineError> {
        let mut line = numbers_of(hash, |from| {
            let slots =
                self.book.lines().range(from, READ_AT_ONCE, &self.book.asked().table(Space::Lines))?;
            Ok(slots.into_iter().map(|(key, _)| key).collect())
        })?;
        line.extend(self.keys.all_passed().filter(|(_, passed)| passed.key == hash).map(|(seq, _)| seq));
        Ok(line)
    }

    /// The open letters that block a key, if the policy has dead messages block their keys.
    fn blocking_letters(&self, hash: u64) -> Result<BTreeSet<u64>, EngineError> {
        if self.options.after_dead == AfterDead::Continue {
            return Ok(BTreeSet::new());
        }
        numbers_of(hash, |from| {
            Ok(self.book.letters().blocking_from(*from, READ_AT_ONCE, self.book.asked())?)
        })
    }
}

/// The numbers of one key in a table ordered by key and number, read in pieces up to the limit.
fn numbers_of(
    hash: u64,
    mut read: impl FnMut(&LineKey) -> Result<Vec<LineKey>, EngineError>,
) -> Result<BTreeSet<u64>, EngineError> {
    let mut numbers = BTreeSet::new();
    let mut from = (hash, 0);
    while numbers.len() <= WAITING_MAX {
        let keys = read(&from)?;
        numbers.extend(keys.iter().take_while(|(key, _)| *key == hash).map(|(_, number)| *number));
        match keys.last() {
            Some((key, last)) if *key == hash && keys.len() == READ_AT_ONCE => from = (hash, last + 1),
            _ => break,
        }
    }
    Ok(numbers)
}
