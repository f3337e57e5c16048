//! The facts about a pipeline at one moment, as plain numbers.

use redrive::figures::Figures;
use redrive::internal::dispatch::health::{cause, flood};
use redrive::internal::subscriptions::Stopped;
use redrive::replay::StoppedReplays;
use redrive::{DeadLetter, Reason, StatusPage, Time};

use super::groups::FoundGroups;

/// The state of one pipeline. Counters start with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Messages that became dead letters.
    pub dead: u64,
    pub open_letters: u64,
    pub oldest_letter: Option<Time>,
    pub pending: u64,
    /// Why the breaker is open, if it is.
    pub breaker_open: Option<String>,
    /// Status pages of the services behind the sink.
    pub status_pages: &'static [StatusPage],
    /// Why the guard paused the pipeline, if it did.
    pub guarded: Option<String>,
    /// Why purging is stopped, if it is.
    pub purging_stopped: Option<String>,
    /// Which replay was stopped and why, if one waits for a decision.
    pub replay_stopped: Option<String>,
    /// Poison pills found since the last poll.
    pub pills: Vec<Pill>,
    /// Groups of dead letters that are new or back since the last poll.
    pub groups: FoundGroups,
}

impl Facts {
    /// Extracts the facts from the figures of a pipeline.
    pub fn of(figures: &Figures) -> Self {
        let (pending, health) = (figures.pending, &figures.health);
        let why_open =
            || health.breaker.cause.map_or_else(|| "it does not answer".to_owned(), |why| cause(&why));
        Self {
            dead: figures.dead.total(),
            open_letters: pending.letters_open,
            oldest_letter: figures.oldest_letter,
            pending: pending.pending(),
            breaker_open: health.is_gated().then(why_open),
            status_pages: &[],
            guarded: health.flood.as_ref().map(flood),
            purging_stopped: None,
            replay_stopped: None,
            pills: Vec::new(),
            groups: FoundGroups::default(),
        }
    }

    /// Adds the state of the services behind the sink. If the sink has several services and one of them is paused
    /// alone, that counts like an open breaker.
    #[must_use]
    pub fn with_services(self, figures: &Figures, status_pages: &'static [StatusPage]) -> Self {
        let paused = figures.health.endpoints.as_ref().map_or(0, |endpoints| endpoints.origins);
        let services = if paused == 1 { "service is" } else { "services are" };
        let is_paused = !status_pages.is_empty() && paused > 0;
        let why =
            is_paused.then(|| format!("{paused} push {services} paused, because too many answers fail"));
        Self { breaker_open: self.breaker_open.or(why), status_pages, ..self }
    }

    /// Adds the state of the table of subscriptions, if there is one.
    #[must_use]
    pub fn with_subscriptions(self, stopped: Option<Stopped>) -> Self {
        let why = stopped.map(|stopped| {
            format!("{} % of active subscriptions were gone within 5 min (limit 2 %)", stopped.percent())
        });
        Self { purging_stopped: why, ..self }
    }

    /// Adds the state of the replay jobs.
    #[must_use]
    pub fn with_replays(self, stopped: Option<&StoppedReplays>) -> Self {
        Self { replay_stopped: stopped.map(StoppedReplays::sentence), ..self }
    }
}

/// A message that was quarantined because it crashed its worker too often. Never contains its payload, or an error
/// text, which may quote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pill {
    pub message_id: String,
    pub crash_count: u32,
    /// Its first crash; it may have failed in other ways before, between or after its crashes.
    pub first_crash_at: Option<Time>,
    pub last_crash_at: Option<Time>,
    pub quarantined_at: Time,
    /// How many failed calls it had.
    pub attempts: u32,
}

impl Pill {
    /// The pill in a dead letter, if it is one.
    pub fn of(letter: &DeadLetter, now: Time) -> Option<Self> {
        let meta = &letter.meta;
        (letter.reason == Reason::PoisonPill).then(|| Self {
            message_id: letter.message.id().to_owned(),
            crash_count: meta.crashes,
            first_crash_at: letter.first_crash,
            last_crash_at: meta.last_crash,
            quarantined_at: now,
            attempts: meta.attempts,
        })
    }
}
