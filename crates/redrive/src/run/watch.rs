//! Times the dispatch thread's work: how long settling takes, and when to publish figures.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive_core::Time;

use super::arrivals::Arrivals;
use super::command::EngineSlot;
use super::shared_figures::SharedFigures;
use super::standstill::Standstill;
use crate::dispatch::Machine;
use crate::engine::{Counts, Engine, EngineError, Oldest, Ticket};
use crate::figures::{Figures, Histogram};

/// Figures are published at most this often while something happens …
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
/// … and this often otherwise. The oldest messages are queried no more often than that.
const PUBLISH_IDLE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Watch {
    board: Arc<SharedFigures>,
    slot: Arc<EngineSlot>,
    given: VecDeque<HandedOver>,
    settle_duration: Histogram,
    schedule_write: Histogram,
    oldest: Oldest,
    oldest_asked: Option<Instant>,
    arrivals: Arrivals,
    published: Option<Instant>,
    /// Whether something happened since the last publication.
    stale: bool,
    standstill: Standstill,
    /// When this round began; all its decisions are later.
    round_began: Instant,
    giving: Instant,
}

/// A batch on its way to the disk.
#[derive(Debug)]
struct HandedOver {
    ticket: Ticket,
    verdicts: usize,
    retries: usize,
    decided: Instant,
    at: Instant,
}

impl Watch {
    pub(crate) fn new(board: Arc<SharedFigures>, slot: Arc<EngineSlot>) -> Self {
        Self {
            board,
            slot,
            given: VecDeque::new(),
            settle_duration: Histogram::of_writes(),
            schedule_write: Histogram::of_writes(),
            oldest: Oldest::default(),
            oldest_asked: None,
            arrivals: Arrivals::default(),
            published: None,
            stale: true,
            standstill: Standstill::default(),
            round_began: Instant::now(),
            giving: Instant::now(),
        }
    }

    /// Begins a round. Returns for how long the thread stood still before it, if it did.
    pub(crate) fn round_begins(&mut self) -> Option<Duration> {
        self.round_began = Instant::now();
        self.standstill.round(self.round_began)
    }

    /// A batch is about to be given to the engine, which may store it before it returns the ticket.
    pub(crate) fn giving(&mut self) {
        self.giving = Instant::now();
    }

    pub(crate) fn given(&mut self, ticket: Ticket, verdicts: usize, retries: usize) {
        let (decided, at) = (self.round_began, self.giving);
        self.given.push_back(HandedOver { ticket, verdicts, retries, decided, at });
    }

    pub(crate) fn durable(&mut self, ticket: Ticket) {
        while let Some(given) = self.given.pop_front_if(|given| given.ticket <= ticket) {
            self.stored(&given);
        }
    }

    /// A batch is stored although an earlier one cannot be.
    pub(crate) fn durable_alone(&mut self, ticket: Ticket) {
        let at = self.given.iter().position(|given| given.ticket == ticket);
        if let Some(given) = at.and_then(|at| self.given.remove(at)) {
            self.stored(&given);
        }
    }

    fn stored(&mut self, given: &HandedOver) {
        let now = Instant::now();
        self.settle_duration.observe_times(now - given.at, given.verdicts as u64);
        self.schedule_write.observe_times(now - given.decided, given.retries as u64);
    }

    /// Something happened that the figures do not show yet.
    pub(crate) fn happened(&mut self) {
        self.stale = true;
    }

    /// How long the thread may sleep before figures have to be published.
    pub(crate) fn patience(&self) -> Duration {
        let since = self.published.map_or(PUBLISH_IDLE, |published| published.elapsed());
        if self.stale { PUBLISH_EVERY.saturating_sub(since) } else { PUBLISH_IDLE.saturating_sub(since) }
    }

    pub(crate) fn publish_if_due(
        &mut self,
        engine: &mut dyn Engine,
        machine: &mut Machine,
        now: Time,
    ) -> Result<(), EngineError> {
        // One update per round keeps the pending estimate accurate between publications.
        let tally = machine.tally();
        self.board.left(tally.succeeded + tally.dead);
        let every = if self.stale { PUBLISH_EVERY } else { PUBLISH_IDLE };
        if self.published.is_some_and(|published| self.round_began.duration_since(published) < every) {
            return Ok(());
        }
        self.publish(engine, machine, now)
    }

    /// Publishes the last figures, with everything up to date.
    pub(crate) fn publish_end(
        &mut self,
        engine: &mut dyn Engine,
        machine: &mut Machine,
        now: Time,
    ) -> Result<(), EngineError> {
        self.oldest_asked = None;
        self.publish(engine, machine, now)
    }

    fn publish(
        &mut self,
        engine: &mut dyn Engine,
        machine: &mut Machine,
        now: Time,
    ) -> Result<(), EngineError> {
        let counts = engine.counts();
        // Show the first letter at once, and continue a search in progress.
        let letter_missing = counts.letters_open > 0 && self.oldest.letter.is_none();
        if letter_missing || self.oldest_asked.is_none_or(|asked| asked.elapsed() >= PUBLISH_IDLE) {
            self.oldest = engine.oldest()?;
            self.oldest_asked = Some(Instant::now());
        }
        let tally = machine.tally();
        self.board.settle_account(&counts, tally.succeeded + tally.dead);
        let came = counts.pending() + tally.succeeded + tally.dead;
        let arrivals_per_second = self.arrivals.per_second(came, self.round_began);
        let paused = self.slot.is_paused();
        let figures = machine.figures(now);
        // The oldest of a second ago may be done by now.
        let oldest_waiting = self.oldest.pending.filter(|_| counts.waiting() > 0);
        let stalled_for = self.oldest.ready.filter(|_| counts.ready > 0).map(|ready| now.since(ready));
        self.board.publish(Figures {
            settle_duration: self.settle_duration,
            schedule_write: self.schedule_write,
            pending: shown_counts(counts, machine.permits_held(), paused || figures.health.is_gated()),
            key_order_voided: counts.key_order_voided,
            upkeep: engine.upkeep(),
            condition: engine.condition(),
            paused,
            arrivals_per_second,
            oldest_pending: oldest_waiting.into_iter().chain(figures.oldest_pending).min(),
            stalled_for: stalled_for.unwrap_or_default(),
            oldest_letter: self.oldest.letter.filter(|_| counts.letters_open > 0),
            ..figures
        });
        self.published = Some(Instant::now());
        self.stale = false;
        Ok(())
    }
}

/// The engine's counts in the form shown: messages with a verdict count as the verdict says, those that were handed
/// out but hold no permit (they wait for their endpoint, or for their turn as a suspect) are ready, and while nothing
/// may start they are held.
pub(crate) fn shown_counts(counts: Counts, permits_held: usize, gated: bool) -> Counts {
    let counts = counts.as_decided().in_flight_at_most(permits_held as u64);
    if gated { counts.all_held() } else { counts }
}
