//! Lookups of letters: lists, scans, one letter, the state of a replay job.

use redrive::internal::engine::erase::{is_tombstone, untitled};
use redrive::internal::engine::letter::SCAN_BYTES;
use redrive::internal::engine::{
    EngineError, GroupFigures, Grouping, History, Letter, LetterScan, LetterStanding, LetterState,
};
use redrive_core::message::MessageError;
use redrive_core::{Fingerprint, GroupId, Message, Meta, Reason, Time};

use super::cache::LetterCache;
use super::entry::LetterEntry;

/// Entries that are copied out of the index in one go.
const PART: usize = 64;

impl LetterCache {
    /// Returns letters ordered by number, after `after`, in `state` if one is given.
    pub fn letters(
        &self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        self.check_loaded()?;
        let entries: Vec<(u64, LetterState, LetterEntry)> = {
            let inner = self.lock();
            let wanted = inner.index.after(after).filter(|(_, is, _)| state.is_none_or(|state| state == *is));
            wanted.take(limit).map(|(number, is, entry)| (number, is, entry.clone())).collect()
        };
        entries.iter().map(|(number, is, entry)| self.opened(*number, *is, entry)).collect()
    }

    /// Like [`Self::letters`], but looks at no more than `look_max` letters and holds about [`SCAN_BYTES`].
    pub fn scan_letters(
        &self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        self.check_loaded()?;
        let mut scan = LetterScan { next: after, ..LetterScan::default() };
        let mut bytes = 0;
        loop {
            let entries: Vec<(u64, LetterState, LetterEntry)> = {
                let inner = self.lock();
                let next = inner.index.after(scan.next).take(PART);
                next.map(|(number, is, entry)| (number, is, entry.clone())).collect()
            };
            if entries.is_empty() {
                return Ok(LetterScan { next: None, ..scan });
            }
            for (number, is, entry) in &entries {
                if scan.letters.len() >= limit || bytes >= SCAN_BYTES || scan.scanned >= look_max as u64 {
                    return Ok(scan);
                }
                scan.scanned += 1;
                scan.next = Some(*number);
                if state.is_none_or(|state| state == *is) {
                    let letter = self.opened(*number, *is, entry)?;
                    bytes += letter.size();
                    scan.letters.push(letter);
                }
            }
        }
    }

    pub fn letter(&self, id: u64) -> Result<Option<Letter>, EngineError> {
        self.check_loaded()?;
        let found = {
            let inner = self.lock();
            inner.index.get(id).and_then(|entry| Some((entry.state()?, entry.clone())))
        };
        found.map(|(is, entry)| self.opened(id, is, &entry)).transpose()
    }

    /// Returns the letters that may belong to the message with this id; `None` if there are too many to check one by
    /// one.
    pub fn letters_of(&self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        self.check_loaded()?;
        Ok(self.lock().index.letters_of(id))
    }

    /// Returns the groups that have open letters.
    pub fn groups(&self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        self.check_loaded()?;
        Ok(self.lock().index.groups().figures(now))
    }

    /// Returns the open letters of a group after `after`, in order.
    pub fn letters_in_group(
        &self,
        group: GroupId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, EngineError> {
        self.check_loaded()?;
        Ok(self.lock().index.groups().letters(group, after, limit))
    }

    /// Counts the open letters of a group that died after `since`, up to `max`.
    pub fn open_since(&self, group: GroupId, since: Time, max: u64) -> Result<u64, EngineError> {
        self.check_loaded()?;
        Ok(self.lock().index.groups().open_since(group, since, max))
    }

    /// Returns the standing of letters in a replay job; `None` for a letter that does not exist.
    pub fn letter_standings(
        &self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.check_loaded()?;
        let inner = self.lock();
        Ok(ids.iter().map(|id| inner.index.standing(job, *id)).collect())
    }

    fn opened(&self, number: u64, state: LetterState, entry: &LetterEntry) -> Result<Letter, EngineError> {
        let content = self.content(entry.at()).map_err(|error| unreadable(&error))?;
        let edited = self.edited_message(number, entry).map_err(|error| unreadable(&error))?;
        let edits = self.lock().index.edited(number).map(|edited| edited.edits.clone()).unwrap_or_default();
        let damaged = content.is_none();
        let reason = entry.reason().filter(|_| !damaged).unwrap_or(Reason::Corrupt);
        let options = content.as_ref().and_then(|content| content.options.as_deref()).map(str::to_owned);
        let (message, meta, history, group) = if let Some(content) = content {
            (edited.unwrap_or(content.message), content.meta, content.history, content.group)
        } else {
            let group = Grouping::default().of(reason, None);
            (stand_in(number)?, Meta::default(), History::default(), group)
        };
        // The rest of an erased letter is hidden even if its tombstone has not been read yet.
        let (message, history, group, edits) = if state == LetterState::Erased {
            let stone = stone_of(message).map_err(|error| EngineError::Damaged(error.to_string()))?;
            (stone, history.without_texts(), untitled(group), Vec::new())
        } else {
            (message, history, group, edits)
        };
        // The index decides in which group it is counted.
        let group = Fingerprint { group: entry.group(), ..group };
        Ok(Letter {
            id: number,
            state,
            reason,
            dead_at: entry.dead_at(),
            job: entry.job(),
            message,
            meta: Meta { replays: entry.replays(), ..meta },
            history,
            group,
            edits,
            options,
        })
    }
}

/// Returns the tombstone of an erased letter, or a substitute with its id and times.
fn stone_of(message: Message) -> Result<Message, MessageError> {
    if is_tombstone(&message) {
        return Ok(message);
    }
    let builder = Message::builder(message.id()).created(message.created());
    match message.deadline() {
        Some(deadline) => builder.deadline(deadline).build(),
        None => builder.build(),
    }
}

/// Returns a placeholder for a letter whose local bytes are damaged. Its record in the topic may be intact.
pub(super) fn stand_in(number: u64) -> Result<Message, EngineError> {
    let message = Message::builder(format!("damaged-{number}")).build();
    message.map_err(|error| EngineError::Damaged(error.to_string()))
}

pub(super) fn unreadable(error: &std::io::Error) -> EngineError {
    EngineError::Unavailable(format!("the local file with the letters cannot be read: {error}"))
}
