//! The part of an engine that changes dead letters.

use redrive_core::{GroupId, Time};

use super::delivery::OnBehalf;
use crate::engine::edit::{EditAnswer, LetterEdit};
use crate::engine::erase::{EraseAnswer, EraseOrder, WipeProgress};
use crate::engine::error::EngineError;
use crate::engine::groups::GroupMark;
use crate::engine::import::{ForeignLetter, ImportAnswer};
use crate::engine::letter::{LetterChange, ReplayAnswer, ReplayJob};

/// Changes letters: replays, discards, edits, erases and imports them.
pub trait KeepLetters: Send + 'static {
    /// Requeues letters, each at most once per job. Durable on return.
    fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ReplayAnswer>, EngineError>;

    /// Discards open letters, or undoes a discard. Durable on return; `false` where the state did not allow it.
    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<bool>, EngineError>;

    /// Gives open letters new messages. The previous message stays with the letter under the name of the edit. Durable
    /// on return.
    fn edit_letters(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError>;

    /// Undoes an edit: open letters whose last edit is this one get their previous message back. Durable on return.
    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError>;

    /// Creates open letters from messages that died elsewhere, in the given order; their time of death is the time of
    /// the request. Messages that already have a letter are skipped. Durable on return; a dry run only returns the
    /// outcomes.
    fn import(
        &mut self,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        let _ = (letters, dry_run, asked);
        Err(EngineError::Unavailable("this engine takes no letters from elsewhere".to_owned()))
    }

    /// Erases the content of letters, except those in a replay: from now on only their tombstones are shown. Durable
    /// on return;
    /// [`KeepLetters::wipe`] then overwrites the copies that are still stored.
    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError>;

    /// Continues overwriting the stored copies of erased letters, and says how much is left. Never blocks; call it
    /// until nothing is left. An engine that was opened after a crash continues by itself.
    fn wipe(&mut self, now: Time) -> Result<WipeProgress, EngineError>;

    /// Reserves a counter for each of these groups, however many groups there are: a decision about a group can only be
    /// evaluated if its letters are counted.
    fn reserve_groups(&mut self, decided: &[GroupId]) {
        let _ = decided;
    }

    /// Stores a decision about a group for all processes that share the pipeline. Durable on return. Does nothing in an
    /// engine whose decisions are stored elsewhere.
    fn mark_group(&mut self, mark: &GroupMark) -> Result<(), EngineError> {
        let _ = mark;
        Ok(())
    }
}
