//! Implements [`KeepLetters`] for the Kafka engine, which changes letters only after their records are written.

use redrive::internal::engine::{
    EditAnswer, EngineError, EraseAnswer, EraseOrder, ForeignLetter, GroupMark, ImportAnswer, KeepLetters,
    LetterChange, LetterEdit, OnBehalf, ReplayAnswer, ReplayJob, WipeProgress,
};
use redrive_core::{GroupId, Time};

use super::kafka::KafkaEngine;

impl KeepLetters for KafkaEngine {
    fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ReplayAnswer>, EngineError> {
        self.check_written(ids)?;
        let answers = self.letters.replay(job, ids, asked)?;
        let replay = self.copies.topics().replay();
        let replayed = ids.iter().zip(&answers).filter(|(_, answer)| **answer == ReplayAnswer::Replayed);
        for (id, _) in replayed {
            if !self.lanes.contains(&replay.name, replay.partition((*id >> 48) as i32)) {
                continue;
            }
            // The replayed message waits here until its record is read, so that nothing of its key overtakes it.
            self.transit.expect_replay(*id, job.due);
            if self.backlog.keys().is_ordered()
                && let Some(letter) = self.letters.letter(*id)?
            {
                self.backlog.keys_mut().letter_replayed(&letter.message, *id);
            }
        }
        Ok(answers)
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<bool>, EngineError> {
        self.check_written(ids)?;
        // Whether a letter blocks its key is looked up when it matters, so nothing has to be updated here.
        self.letters.change_letters(change, ids, asked)
    }

    fn edit_letters(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        let ids: Vec<u64> = letters.iter().map(|letter| letter.letter).collect();
        self.check_written(&ids)?;
        self.letters.edit_letters(edit, letters, asked)
    }

    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        self.check_written(ids)?;
        self.letters.undo_edit(edit, ids, asked)
    }

    fn import(
        &mut self,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        self.letters.import(&letters, dry_run, asked)
    }

    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError> {
        self.check_written(ids)?;
        self.letters.erase_letters(order, ids, now)
    }

    fn wipe(&mut self, _now: Time) -> Result<WipeProgress, EngineError> {
        Ok(self.trimmer.trim_now())
    }

    fn reserve_groups(&mut self, decided: &[GroupId]) {
        self.letters.reserve_groups(decided);
    }

    fn mark_group(&mut self, mark: &GroupMark) -> Result<(), EngineError> {
        self.control.mark(mark)
    }
}
