//! What is known about one message: one certain situation, or two while it is open whether a settlement holds.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::{Message, Meta, Reason, Time};

use crate::engine::history::History;
use crate::engine::letter::{LetterState, REPLAYS_MAX, ReplayAnswer, ReplayJob};
use crate::engine::seam::Ticket;

/// What a message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// `None` for a fresh message.
    pub due: Option<Time>,
    /// The latest due time it may have: an engine may push it just past the latest time it has read up to, but no
    /// further.
    pub due_latest: Time,
    /// Whether a take saw it due. It may then start even if the clock was set back since.
    pub came_due: bool,
}

impl Wait {
    pub(super) const FRESH: Self = Self { due: None, due_latest: Time::ZERO, came_due: true };

    pub(super) fn until(due: Time, high_water: Time) -> Self {
        let behind = Time::from_millis(high_water.as_millis() + 1);
        Self { due: Some(due), due_latest: due.max(behind), came_due: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Waiting(Wait),
    /// Handed out, and where it goes if it is released.
    InFlight(Wait),
    Done,
    Letter,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LetterModel {
    pub state: LetterState,
    pub reason: Reason,
    pub dead_at: Time,
    pub job: Option<u64>,
    pub jobs: BTreeSet<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Situation {
    pub at: Position,
    pub meta: Meta,
    pub history: History,
    pub letter: Option<LetterModel>,
}

impl Situation {
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.at, Position::Done | Position::Letter)
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.at, Position::InFlight(_))
    }

    pub(super) fn waiting(&self) -> Option<&Wait> {
        if let Position::Waiting(wait) = &self.at { Some(wait) } else { None }
    }

    pub(super) fn letter_state(&self) -> Option<LetterState> {
        self.letter.as_ref().map(|letter| letter.state)
    }

    /// The answer that an engine has to give to a replay of this letter.
    pub(super) fn replay_answer(&self, job: &ReplayJob) -> ReplayAnswer {
        let Some(letter) = &self.letter else { return ReplayAnswer::NotFound };
        let replays = self.meta.replays;
        if letter.jobs.contains(&job.id) {
            ReplayAnswer::Already
        } else if letter.state != LetterState::Open {
            ReplayAnswer::NotOpen(letter.state)
        } else if replays >= REPLAYS_MAX && !job.force {
            ReplayAnswer::TooOften { replays }
        } else {
            ReplayAnswer::Replayed
        }
    }
}

/// Whether a message is in its key's line, as far as the model can know. Fresh messages and replays certainly are. A
/// message ingested with a delay joins between the first take that could see it and the first that must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineMembership {
    pub surely: bool,
    /// Whether it is in line only because it came due, which an engine may forget in a crash.
    pub floating: bool,
}

impl LineMembership {
    pub(super) const JOINED: Self = Self { surely: true, floating: false };
    pub(super) const NOT_JOINED: Self = Self { surely: false, floating: true };
}

/// A settlement that may or may not hold.
#[derive(Clone, Debug)]
pub(super) struct Maybe {
    /// The batch that makes it hold; `None` after a crash, when only the engine knows.
    pub ticket: Option<Ticket>,
    pub then: Situation,
}

#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub message: Message,
    /// The edits of its letter, each with the message before it.
    pub edits: Vec<(String, Message)>,
    pub now: Situation,
    pub maybe: Option<Maybe>,
    pub membership: LineMembership,
    /// Whether it may exist more than once; nothing else is known about it then.
    pub twin: bool,
    /// Whether it was claimed; a retry then does not store its place in the line.
    pub claimed: bool,
    /// Set if its settlement was visible before this batch was durable: a crash may still undo a part of it.
    pub shown_early: Option<Ticket>,
}

impl Tracked {
    pub(super) fn is_certain(&self) -> bool {
        self.maybe.is_none()
    }

    /// Whether it is known to be terminal.
    pub(super) fn is_over(&self) -> bool {
        !self.twin && self.is_certain() && self.now.is_terminal()
    }

    /// Whether a crash now may leave it in two places: its verdict moves it, and may hold only in part.
    pub(super) fn may_be_twins(&self) -> bool {
        self.shown_early.is_some()
            || self
                .maybe
                .as_ref()
                .is_some_and(|maybe| maybe.then != self.now && maybe.then.at != Position::Done)
            || (self.maybe.is_some() && self.now.letter.is_some())
    }

    /// All situations it may be in.
    pub(super) fn candidates(&self) -> impl Iterator<Item = &Situation> {
        std::iter::once(&self.now).chain(self.maybe.iter().map(|maybe| &maybe.then))
    }

    /// Keeps the situations that agree with what the engine has shown; returns `false` if none does.
    pub(super) fn keep(&mut self, agrees: impl Fn(&Situation) -> bool) -> bool {
        if self.twin {
            return true;
        }
        let then_agrees = self.maybe.as_ref().map(|maybe| agrees(&maybe.then));
        match (agrees(&self.now), then_agrees) {
            // While its ticket is not durable, a settlement that does not show yet may still do so.
            (true, Some(false)) => {
                self.maybe = self.maybe.take().filter(|maybe| maybe.ticket.is_some());
                true
            }
            (true, _) => true,
            (false, Some(true)) => {
                self.resolve();
                true
            }
            (false, _) => false,
        }
    }

    /// Makes the settlement certain.
    pub(super) fn resolve(&mut self) {
        if let Some(maybe) = self.maybe.take() {
            self.shown_early = maybe.ticket.or(self.shown_early);
            self.now = maybe.then;
            // A retry stores its place in the line; a release changes nothing.
            if !self.claimed {
                self.membership.floating &= self.now.waiting().is_some_and(|wait| wait.came_due);
            }
        }
    }

    pub(super) fn is_key(&self, key: &[u8]) -> bool {
        self.message.key() == Some(key)
    }
}

/// The foreign letters that were offered, each with its own number, and the letters created from them.
#[derive(Debug, Default)]
pub(super) struct Imports {
    pub last: u64,
    pub made: BTreeMap<u64, u64>,
}
