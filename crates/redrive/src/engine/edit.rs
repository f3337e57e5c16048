//! Edits of dead letters: an edit replaces the message of an open letter. The previous message stays with the letter,
//! so that the edit can be undone.

use redrive_core::{Message, Time};

use super::letter::{Letter, LetterState};

/// Versions stored besides the current one. Further edits are refused, because the original is never dropped.
pub const EDITS_MAX: usize = 8;
/// The maximum length of an edit's name.
pub const EDIT_NAME_BYTES_MAX: usize = 64;

/// A version of a letter's message that an edit has replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The edit that replaced it: `e-12`.
    pub edit: String,
    pub message: Message,
}

/// The version of a letter that a caller has seen. It changes with each death, edit and undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterVersion {
    pub dead_at: Time,
    pub last_edit: Option<String>,
}

impl LetterVersion {
    pub fn of(letter: &Letter) -> Self {
        Self { dead_at: letter.dead_at, last_edit: letter.edits.last().cloned() }
    }

    /// Whether a letter with this time of death and this last edit is still the same version.
    pub fn is_current(&self, dead_at: Time, last_edit: Option<&str>) -> bool {
        self.dead_at == dead_at && self.last_edit.as_deref() == last_edit
    }
}

/// One letter of an edit, with its new message.
#[derive(Clone, Debug)]
pub struct LetterEdit {
    pub letter: u64,
    /// The version that the new message was made from. The edit is refused if the letter has changed since.
    pub from: LetterVersion,
    pub message: Message,
}

/// Why a letter was or was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditAnswer {
    Done,
    NotFound,
    /// It is in a replay, succeeded, discarded or erased.
    NotOpen(LetterState),
    /// It died again or was edited since; for an undo: this is not its last edit.
    Changed,
    /// It already holds [`EDITS_MAX`] versions.
    TooMany,
    /// The new message and the versions before it are together too large for the store.
    TooLarge,
    /// Its stored bytes cannot be read, so the original could not be kept.
    Damaged,
}
