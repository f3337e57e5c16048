//! Changes of letters in the store: plans the frames, has them written, and answers once they are durable.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use redrive_core::{GroupId, Message, Time};

use super::edit::{self, Revision};
use super::erase;
use super::import;
use crate::engine::edit::{EditAnswer, LetterEdit};
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::{IndexTables, LetterSlot};
use crate::engine::embedded::journal::record::{LetterChanged, Stored, Was};
use crate::engine::embedded::state::book::JOBS_MAX;
use crate::engine::embedded::store::find::Lookup;
use crate::engine::embedded::store::store::Store;
use crate::engine::embedded::write::command::Command;
use crate::engine::erase::{EraseAnswer, EraseOrder, WipeProgress};
use crate::engine::import::{ForeignLetter, ImportAnswer};
use crate::engine::letter::{LetterChange, LetterState, REPLAYS_MAX, ReplayAnswer, ReplayJob};
use crate::engine::seam::{EngineError, KeepLetters, OnBehalf};

impl<D: Disk, S: IndexTables> KeepLetters for Store<D, S> {
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
                    None => match replayed(&self.lookup(), &slot, job)? {
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
        write_revision(self, revision)
    }

    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        _asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        let revision = edit::undo(&self.lookup(), edit, ids)?;
        write_revision(self, revision)
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

    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError> {
        self.check()?;
        let stones = erase::plan(&self.lookup(), order, ids, now)?;
        if !stones.letters.is_empty() {
            let (erased, letters) =
                (stones.letters.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), stones.letters);
            let recorded = self.erasing.record(&erased);
            self.guard(recorded)?;
            self.write(|ticket| Command::EditLetters { ticket, letters })?;
            self.erasing.want(erased);
        }
        Ok(stones.answers)
    }

    fn wipe(&mut self, _now: Time) -> Result<WipeProgress, EngineError> {
        // An idle engine is not polled otherwise.
        self.keep_going()?;
        Ok(WipeProgress { parts_left: self.erasing.parts_left(), ..WipeProgress::default() })
    }

    fn reserve_groups(&mut self, decided: &[GroupId]) {
        self.waiting.book.reserve_groups(decided);
    }
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

fn write_revision<D: Disk, S: IndexTables>(
    store: &mut Store<D, S>,
    revision: Revision,
) -> Result<Vec<EditAnswer>, EngineError> {
    let Revision { answers, letters } = revision;
    if !letters.is_empty() {
        store.write(|ticket| Command::EditLetters { ticket, letters })?;
    }
    Ok(answers)
}

/// The frame of a letter that is requeued.
fn replayed<D: Disk, S: IndexTables>(
    lookup: &Lookup<'_, D, S>,
    slot: &LetterSlot,
    job: &ReplayJob,
) -> Result<Option<Stored>, EngineError> {
    let Some(stored) = lookup.contents.stored_letter(slot)? else { return Ok(None) };
    let Ok(message) = Message::from_wire(stored.wire.clone()) else { return Ok(None) };
    let forgotten = (slot.jobs.len() + 1).saturating_sub(JOBS_MAX);
    Ok(Some(Stored {
        was: Was::Letter,
        key: lookup.book.hash_of(&message),
        due: Some(job.due.as_millis()),
        jobs: slot.jobs.iter().skip(forgotten).copied().chain([job.id]).collect(),
        meta: stored.meta.replayed(),
        group: None,
        options: None,
        // They stay with the letter and are found there when it dies again.
        replaced: Vec::new(),
        ..stored
    }))
}
