//! The state of a message looked up by its id, and its history.

#![warn(missing_docs)]

use redrive_core::{Meta, Reason, Time};

use super::history::{Attempt, History};
use super::letter::{Letter, LetterState};
use super::pending::{PendingMessage, PendingState};

/// The phases of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessagePhase {
    /// It waits for a permit for its first attempt.
    Ready,
    /// It waits for its due time, or has come due and waits for a permit.
    Delayed,
    /// Like `Delayed`, but it was deferred: its sink, its endpoint or the budget did not allow an attempt.
    Held,
    /// It is handed out: its handler runs, or is about to.
    InFlight,
    /// It waits behind an earlier message of its key.
    KeyWait,
    /// It is an open dead letter.
    Dead,
    /// It is a dead letter that was requeued and waits for its delivery.
    Replaying,
    /// It is a discarded dead letter.
    Discarded,
    /// It is a dead letter whose content was erased.
    Erased,
    /// It was delivered.
    Succeeded,
    /// It was accepted, but its record was lost, to damage or to a loss that an operator accepted.
    Unknown,
}

impl MessagePhase {
    /// All phases.
    pub const ALL: [Self; 11] = [
        Self::Ready,
        Self::Delayed,
        Self::Held,
        Self::InFlight,
        Self::KeyWait,
        Self::Dead,
        Self::Replaying,
        Self::Discarded,
        Self::Erased,
        Self::Succeeded,
        Self::Unknown,
    ];

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Held => "held",
            Self::InFlight => "in_flight",
            Self::KeyWait => "key_wait",
            Self::Dead => "dead",
            Self::Replaying => "replaying",
            Self::Discarded => "discarded",
            Self::Erased => "erased",
            Self::Succeeded => "succeeded",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for MessagePhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl From<PendingState> for MessagePhase {
    fn from(state: PendingState) -> Self {
        match state {
            PendingState::Ready => Self::Ready,
            PendingState::Held => Self::Held,
            PendingState::Delayed => Self::Delayed,
            PendingState::KeyWait => Self::KeyWait,
            PendingState::InFlight => Self::InFlight,
        }
    }
}

impl From<LetterState> for MessagePhase {
    fn from(state: LetterState) -> Self {
        match state {
            LetterState::Open => Self::Dead,
            LetterState::Replaying => Self::Replaying,
            LetterState::Succeeded => Self::Succeeded,
            LetterState::Discarded => Self::Discarded,
            LetterState::Erased => Self::Erased,
        }
    }
}

/// The current state of one message. For a message that succeeded and never was a letter, only the phase is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageState {
    /// The message's id.
    pub id: String,
    /// Its phase.
    pub state: MessagePhase,
    /// Counted failed attempts; a replay starts again at zero.
    pub attempts: u32,
    /// Its due time, if it waits or waited for one.
    pub due: Option<Time>,
    /// When it expires.
    pub deadline: Option<Time>,
    /// Its failed attempts that are still stored, oldest first.
    pub history: Vec<Attempt>,
    /// The number of its letter, if it was ever a dead letter.
    pub letter: Option<u64>,
    /// Why it died last.
    pub reason: Option<Reason>,
    /// The number with which a repeat of its id would be answered as a duplicate; `None` once the window is over.
    pub duplicate_of: Option<u64>,
}

impl MessageState {
    /// The state of a message of which only the phase is known.
    pub fn new(id: &str, state: MessagePhase) -> Self {
        Self {
            id: id.to_owned(),
            state,
            attempts: 0,
            due: None,
            deadline: None,
            history: Vec::new(),
            letter: None,
            reason: None,
            duplicate_of: None,
        }
    }

    /// The state of a listed message. A requeued letter is `replaying` until it runs.
    pub fn of_pending(found: &PendingMessage) -> Self {
        let (state, number) = (found.at.state, found.at.number);
        let replays = found.meta.replays > 0;
        let phase =
            if replays && state != PendingState::InFlight { MessagePhase::Replaying } else { state.into() };
        let waits = matches!(state, PendingState::Held | PendingState::Delayed);
        let due = found.due.filter(|_| waits);
        let state = Self::new(found.message.id(), phase).with_history(&found.meta, &found.history);
        Self { due, letter: replays.then_some(number), ..state }
    }

    /// The state of a message that is a dead letter.
    pub fn of_letter(letter: &Letter) -> Self {
        let state =
            Self::new(letter.message.id(), letter.state.into()).with_history(&letter.meta, &letter.history);
        Self { letter: Some(letter.id), reason: Some(letter.reason), ..state }
    }

    /// Adds the attempts so far.
    #[must_use]
    pub(super) fn with_history(self, meta: &Meta, history: &History) -> Self {
        Self { attempts: meta.attempts, deadline: meta.deadline, history: history.attempts(), ..self }
    }
}

/// Counting stops here, so that a lookup does not delay deliveries.
pub const WAITING_MAX: usize = 10_000;

/// The line of a key that has at least one unfinished message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// The message that the others wait for: it runs or waits for its due time. With `block_key`, the open letter that
    /// blocks the key.
    pub head: MessageState,
    /// How many messages wait behind it, as far as they were counted; at most [`WAITING_MAX`].
    pub waiting: u64,
}
