//! Where a message is, asked by its id, and its story so far.

#![warn(missing_docs)]

use redrive_core::{Meta, Reason, Time};

use super::history::{Attempt, History};
use super::letter::{Letter, LetterState};
use super::pending::{PendingMessage, PendingState};

/// Every state a message can be seen in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessagePhase {
    /// Waits for a permit, for the first time.
    Ready,
    /// Waits for its due time, or has come due and waits for a permit.
    Delayed,
    /// Like delayed, but because it was deferred: its sink, its endpoint or the budget did not allow an attempt.
    Held,
    /// A handler has it, or it was taken for one.
    InFlight,
    /// Waits behind an earlier message of its key.
    KeyWait,
    /// Is an open dead letter.
    Dead,
    /// Is a dead letter that was put back and waits for its delivery.
    Replaying,
    /// Is a dead letter that was discarded.
    Discarded,
    /// Is a dead letter whose content was erased.
    Erased,
    /// It was delivered.
    Succeeded,
    /// It was accepted, and what became of it was lost: damage, or a loss that was accepted.
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

/// One message as it is now. Of one that succeeded without ever having been a letter, only that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageState {
    /// The message's id.
    pub id: String,
    /// Where it is.
    pub state: MessagePhase,
    /// Counted failed attempts; a replay starts again at zero.
    pub attempts: u32,
    /// When it comes or came due, for one that waits for its time.
    pub due: Option<Time>,
    /// When it is of no use any more.
    pub deadline: Option<Time>,
    /// Its failed attempts, oldest first, as far as they are kept.
    pub history: Vec<Attempt>,
    /// The number of its letter, if it was ever a dead letter.
    pub letter: Option<u64>,
    /// Why it died last.
    pub reason: Option<Reason>,
    /// The number a repeat of its id would be answered with as a duplicate; `None` once the window is over.
    pub duplicate_of: Option<u64>,
}

impl MessageState {
    /// A message of which only the phase is known.
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

    /// A message that was found by a listing. One that was put back out of the letters is `replaying` until it runs.
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

    /// A message that is a dead letter.
    pub fn of_letter(letter: &Letter) -> Self {
        let state =
            Self::new(letter.message.id(), letter.state.into()).with_history(&letter.meta, &letter.history);
        Self { letter: Some(letter.id), reason: Some(letter.reason), ..state }
    }

    /// With its attempts so far.
    #[must_use]
    pub(super) fn with_history(self, meta: &Meta, history: &History) -> Self {
        Self { attempts: meta.attempts, deadline: meta.deadline, history: history.attempts(), ..self }
    }
}

/// More than this are not counted: who asks must not hold up deliveries.
pub const WAITING_MAX: usize = 10_000;

/// A key of which a message has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// The one that runs, or waits for its due time, and that the others wait for; with `block_key` the open letter that
    /// blocks the key.
    pub head: MessageState,
    /// How many stand behind it, as far as they were looked at; at most [`WAITING_MAX`].
    pub waiting: u64,
}
