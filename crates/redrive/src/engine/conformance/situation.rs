//! What is known of one message: one situation for sure, or two between a settlement and the proof that it was kept.

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
    /// An engine may push a due time up to just behind the latest moment it has read up to, but no further.
    pub due_latest: Time,
    /// Whether some take saw it due. It may then start even if the clock has been set back since.
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
    /// Handed out, and where it goes back to if that comes to nothing.
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

    /// What an engine has to answer to a replay of this letter.
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

/// Whether a message stands in its key's line, as far as the model can know. Fresh messages and replays surely do; one
/// that was ingested with a delay joins some time between the first take that could see it and the first that must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineMembership {
    pub surely: bool,
    /// That it stands in line rests on having come due, which an engine need not remember over a crash.
    pub floating: bool,
}

impl LineMembership {
    pub(super) const JOINED: Self = Self { surely: true, floating: false };
    pub(super) const NOT_JOINED: Self = Self { surely: false, floating: true };
}

/// A settlement that may or may not hold.
#[derive(Clone, Debug)]
pub(super) struct Maybe {
    /// The batch that will make it hold; `None` after a crash: only the engine knows.
    pub ticket: Option<Ticket>,
    pub then: Situation,
}

#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub message: Message,
    /// The edits of its letter, each with the message of before.
    pub edits: Vec<(String, Message)>,
    pub now: Situation,
    pub maybe: Option<Maybe>,
    pub membership: LineMembership,
    /// It may exist more than once, and nothing else is known of it any more.
    pub twin: bool,
    /// It was taken out by name: a retry then does not write its place in the line down.
    pub claimed: bool,
    /// Its settlement showed itself before this batch was durable: a crash may still leave a part of it undone.
    pub shown_early: Option<Ticket>,
}

impl Tracked {
    pub(super) fn is_certain(&self) -> bool {
        self.maybe.is_none()
    }

    /// Whether its end is known.
    pub(super) fn is_over(&self) -> bool {
        !self.twin && self.is_certain() && self.now.is_terminal()
    }

    /// Whether a crash now may leave it in two places: its verdict put it somewhere else, and may hold only in part.
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

    /// The engine has shown something: keeps the situations that agree with it. `false` if none does.
    pub(super) fn keep(&mut self, agrees: impl Fn(&Situation) -> bool) -> bool {
        if self.twin {
            return true;
        }
        let then_agrees = self.maybe.as_ref().map(|maybe| agrees(&maybe.then));
        match (agrees(&self.now), then_agrees) {
            // While its ticket is open, a settlement that has not shown itself may still do so.
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

    /// The settlement holds.
    pub(super) fn resolve(&mut self) {
        if let Some(maybe) = self.maybe.take() {
            self.shown_early = maybe.ticket.or(self.shown_early);
            self.now = maybe.then;
            // A retry writes the place down; a release leaves everything as it was.
            if !self.claimed {
                self.membership.floating &= self.now.waiting().is_some_and(|wait| wait.came_due);
            }
        }
    }

    pub(super) fn is_key(&self, key: &[u8]) -> bool {
        self.message.key() == Some(key)
    }
}

/// Foreign letters that were offered, by a number of their own, and the letters that were made of them.
#[derive(Debug, Default)]
pub(super) struct Imports {
    pub last: u64,
    pub made: BTreeMap<u64, u64>,
}
