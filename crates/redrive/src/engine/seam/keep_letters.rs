//! The part of an engine that changes dead letters, for every change that can be requested.

use redrive_core::{GroupId, Time};

use super::delivery::OnBehalf;
use crate::engine::edit::{EditAnswer, LetterEdit};
use crate::engine::erase::{EraseAnswer, EraseOrder, WipeProgress};
use crate::engine::error::EngineError;
use crate::engine::groups::GroupMark;
use crate::engine::import::{ForeignLetter, ImportAnswer};
use crate::engine::letter::{LetterChange, ReplayAnswer, ReplayJob};

/// Changes letters: puts them back, gives them up, edits, erases and imports them.
pub trait KeepLetters: Send + 'static {
    /// Puts letters back to be delivered, each at most once per job. Durable on return.
    fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ReplayAnswer>, EngineError>;

    /// Discards open letters, or takes a discard back. Durable on return; `false` where the state did not allow it.
    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<bool>, EngineError>;

    /// Gives open letters new messages. The message before stays with the letter under the name of the edit. Durable on
    /// return.
    fn edit_letters(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError>;

    /// Gives open letters whose last edit is this one the message back that they had before it. Durable on return.
    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError>;

    /// Makes letters of messages that died elsewhere, in the order given; they are open and died when it was asked for. A letter with the
    /// same message is not made again. Durable on return; a dry run only says what would become of each.
    fn import(
        &mut self,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        let _ = (letters, dry_run, asked);
        Err(EngineError::Unavailable("this engine takes no letters from elsewhere".to_owned()))
    }

    /// Erases what letters said, except those in a replay: from now on only their tombstones are shown. Durable on return;
    /// [`KeepLetters::wipe`] then overwrites the copies that are still stored.
    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError>;

    /// Goes on with overwriting the stored copies of erased letters, and says what is left to do. Never blocks: call it until
    /// nothing is. An engine that was opened after a crash goes on by itself.
    fn wipe(&mut self, now: Time) -> Result<WipeProgress, EngineError>;

    /// Groups about which something was decided: their letters are counted in them, however many groups there are, or a
    /// decision would be blind for what it is about.
    fn reserve_groups(&mut self, decided: &[GroupId]) {
        let _ = decided;
    }

    /// Keeps a decision about a group for all processes that share the pipeline. Durable on return. An engine whose
    /// decisions are kept outside has nothing to do.
    fn mark_group(&mut self, mark: &GroupMark) -> Result<(), EngineError> {
        let _ = mark;
        Ok(())
    }
}
