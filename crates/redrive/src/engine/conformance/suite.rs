//! Runs commands on the engine and on the model, and compares the two after each.

use redrive_core::{Message, Time};

use super::Harness;
use super::check::{Check, Violation, violation};
use super::command::{Command, Offer};
use super::model::Model;
use super::situation::Imports;
use crate::engine::ingest::{Accepted, NewMessage};
use crate::engine::seam::{Delivery, Event, StoreOptions, TakeGate, Ticket};

/// How long the suite waits for an engine before it calls it stuck, in calls of [`Harness::idle`].
pub(super) const IDLES_MAX: u32 = 20_000;

pub(super) struct Suite {
    pub harness: Box<dyn Harness>,
    pub model: Model,
    pub now: Time,
    pub flights: Vec<Delivery>,
    pub used: Vec<Delivery>,
    pub given: Option<Ticket>,
    pub reported: Option<Ticket>,
    /// The number of ids offered: `m1` up to this one.
    pub ids: u64,
    pub attempts: u32,
    /// The number of edits made: `e-1` up to this one.
    pub edits: u64,
    pub imports: Imports,
    /// How many takes of one place in a row left the same side waiting, and which side.
    streak: (bool, u32),
}

impl Suite {
    pub(super) fn new(harness: Box<dyn Harness>, options: StoreOptions) -> Self {
        let mut model = Model::new(options);
        model.numbers_rise = harness.numbers_rise();
        model.twins = harness.may_leave_twins();
        Self {
            harness,
            model,
            now: Time::from_millis(1_000_000_000),
            flights: Vec::new(),
            used: Vec::new(),
            given: None,
            reported: None,
            ids: 0,
            attempts: 0,
            edits: 0,
            imports: Imports::default(),
            streak: (false, 0),
        }
    }

    pub(super) fn step(&mut self, command: &Command) -> Check {
        self.model.high_water = self.model.high_water.max(self.now);
        match command {
            Command::Ingest { batch, crash } => self.ingest(batch, *crash)?,
            Command::Take { room } => self.take(usize::from(*room))?,
            Command::Settle { which } => self.settle(which)?,
            Command::SettleAgain { which, how } => self.settle_again(*which, *how)?,
            Command::Gate { closed } => {
                self.harness.engine().gate(TakeGate::of_pause(*closed));
                self.model.gated = *closed;
            }
            Command::Poll => self.poll()?,
            Command::Wait => self.wait()?,
            Command::Crash => {
                self.harness.crash_and_reopen();
                self.reopened();
                // Every second time, uncertainties left by the crash stay open, to be resolved by later commands.
                if self.ids.is_multiple_of(2) {
                    self.all_messages()?;
                }
            }
            Command::CloseAndReopen => self.close_and_reopen()?,
            Command::Letters { state, page } => self.letters(*state, usize::from(*page))?,
            Command::Letter { which } => self.letter(*which)?,
            Command::Message { which } => self.message(*which)?,
            Command::Pending { page } => drop(self.pending(usize::from(*page))?),
            Command::Steer { which, how } => self.steer(*which, *how)?,
            Command::Replay { job, which, delay_ms, force } => self.replay(*job, which, *delay_ms, *force)?,
            Command::Relapse { which, job, times } => self.relapse(*which, *job, *times)?,
            Command::Discard { which } => self.change(true, which)?,
            Command::Undo { which } => self.change(false, which)?,
            Command::Edit { which } => self.edit(*which)?,
            Command::UndoEdit { which } => self.undo_edit(*which)?,
            Command::Import { which, dry_run } => self.import(which, *dry_run)?,
            Command::Erase { which } => self.erase(*which)?,
            Command::ClockForward { ms } => {
                self.now = Time::from_millis(self.now.as_millis() + u64::from(*ms));
            }
            Command::ClockBack { ms } => self.now = Time::from_millis(self.now.as_millis() - u64::from(*ms)),
        }
        self.compare()
    }

    pub(super) fn compare(&mut self) -> Check {
        let counts = self.harness.engine().counts();
        self.model.check_counts(counts)?;
        let next_due = self.harness.engine().next_due();
        self.model.check_next_due(next_due)
    }

    fn ingest(&mut self, offers: &[Offer], crash: bool) -> Check {
        let batch: Vec<NewMessage> = offers.iter().map(|offer| self.offer(*offer)).collect();
        let memberships: Vec<_> = batch.iter().map(super::model::Model::standing_of).collect();
        let mut answer = self.harness.submit(batch.clone(), self.now);
        if crash {
            self.harness.crash_and_reopen();
            self.reopened();
        }
        for _ in 0..IDLES_MAX {
            match answer.try_recv() {
                Ok(Ok(answers)) => {
                    // The engine's owner learns that it is durable only by a poll.
                    self.poll()?;
                    return self.accepted(&batch, &memberships, &answers);
                }
                Err(tokio::sync::oneshot::error::TryRecvError::Empty) => {
                    self.poll()?;
                    self.harness.idle();
                }
                Ok(Err(_)) | Err(_) if crash => {
                    self.model.unanswered.extend(batch.into_iter().zip(memberships));
                    return Ok(());
                }
                Ok(Err(error)) => return violation("ingest", format!("refused: {error}")),
                Err(_) => return violation("ingest", "the answer was dropped"),
            }
        }
        violation("ingest", "there is no answer")
    }

    fn accepted(
        &mut self,
        batch: &[NewMessage],
        memberships: &[super::situation::LineMembership],
        answers: &[Accepted],
    ) -> Check {
        if answers.len() != batch.len() {
            return violation("ingest", format!("{} answers for {} messages", answers.len(), batch.len()));
        }
        for ((new, membership), answer) in batch.iter().zip(memberships).zip(answers) {
            self.model.accepted(new, *membership, *answer, self.now)?;
        }
        Ok(())
    }

    fn offer(&mut self, offer: Offer) -> NewMessage {
        self.ids += 1;
        let id = offer.again.map_or(self.ids, |pick| 1 + u64::from(pick) % self.ids);
        let after = |ms: u32| Time::from_millis(self.now.as_millis() + u64::from(ms));
        let mut message = Message::builder(format!("m{id}"))
            .created(self.now)
            .header("x-offer", self.ids.to_string())
            .payload(vec![self.ids as u8; usize::from(offer.bytes)]);
        if offer.key > 0 {
            message = message.key(format!("k{}", offer.key));
        }
        if let Some(ttl_ms) = offer.ttl_ms {
            message = message.deadline(after(ttl_ms));
        }
        let message = message.build().expect("offers are within all bounds");
        self.harness.admissible(NewMessage { message, due: offer.delay_ms.map(after) })
    }

    pub(super) fn take(&mut self, room: usize) -> Check {
        let open = !self.model.gated && room > 0;
        let startable = self.model.startable(self.now);
        let mut taken = self.take_once(room)?;
        if room > 0 && room == taken.len() {
            self.check_sharing(room, startable, &taken)?;
        } else if room > 0 {
            // All startable messages have started, so none was passed over; an engine may have used up its turn.
            self.streak.1 = 0;
        }
        // An engine that reads ahead in the background may need a moment, but must then deliver what waits.
        let mut idles = 0;
        while taken.len() < room.min(startable.total()) {
            idles += 1;
            if idles > IDLES_MAX {
                let what = format!("{} of {room} came, {startable:?}", taken.len());
                return violation("no_stall", what);
            }
            self.poll()?;
            self.harness.idle();
            taken.extend(self.take_once(room - taken.len())?);
        }
        if open && taken.len() < room {
            if self.harness.window() == usize::MAX {
                self.model.take_saw_all(self.now);
            }
            let mut next_due = self.harness.engine().next_due();
            // An engine that does not know yet what is beyond its window may report the current time.
            while next_due.is_some_and(|due| due <= self.now) && idles <= IDLES_MAX && taken.len() < room {
                idles += 1;
                self.poll()?;
                self.harness.idle();
                taken.extend(self.take_once(room - taken.len())?);
                next_due = self.harness.engine().next_due();
            }
            if next_due.is_some_and(|due| due <= self.now) && taken.len() < room {
                let what = format!("nothing more came at {:?}, but the next is due {next_due:?}", self.now);
                return violation("next_due", what);
            }
        }
        if open {
            self.model.mark_came_due(self.now);
        }
        self.flights.extend(taken);
        Ok(())
    }

    fn take_once(&mut self, room: usize) -> Result<Vec<Delivery>, Violation> {
        let mut out = Vec::new();
        self.harness.engine().take(self.now, room, &mut out).map_err(failed)?;
        if out.len() > room || (self.model.gated && !out.is_empty()) {
            return violation(
                "room",
                format!("{} came for {room} places, gate {}", out.len(), self.model.gated),
            );
        }
        for delivery in &out {
            self.model.started(delivery, self.now)?;
        }
        Ok(out)
    }

    /// Checks that each side gets half of the room if both wait, and single places alternately.
    fn check_sharing(
        &mut self,
        room: usize,
        startable: super::order::Startable,
        taken: &[Delivery],
    ) -> Check {
        // Ordered messages may come from either side: a due message that had to wait for its key no longer counts as
        // timed.
        let ordered = taken.iter().filter(|d| self.is_ordered(d)).count();
        let due = taken.iter().filter(|d| d.due.is_some() && !self.is_ordered(d)).count();
        let fresh = taken.len() - ordered - due;
        let half = room / 2;
        let due_seen = startable.due.min(self.harness.window());
        if due + ordered < half.min(due_seen) || fresh + ordered < half.min(startable.fresh) {
            return violation(
                "sharing",
                format!("{due} due and {fresh} fresh for {room}, waiting {startable:?}"),
            );
        }
        let contested = room == 1 && due_seen > 0 && startable.fresh > 0 && ordered == 0;
        let side = due > 0;
        self.streak = match (contested, self.streak) {
            (true, (before, count)) if before == side => (side, count + 1),
            (true, _) => (side, 1),
            (false, _) => (side, 0),
        };
        if self.streak.1 > 2 {
            return violation("sharing", format!("one side got {} single places in a row", self.streak.1));
        }
        Ok(())
    }

    fn is_ordered(&self, delivery: &Delivery) -> bool {
        self.model.options.ordering == crate::engine::seam::DeliveryOrder::Key
            && delivery.message.key().is_some()
    }

    pub(super) fn poll(&mut self) -> Check {
        let mut events = Vec::new();
        self.harness.engine().poll(&mut events).map_err(failed)?;
        for ticket in events.into_iter().filter_map(Event::durable) {
            if self.given.is_none_or(|given| ticket > given)
                || self.reported.is_some_and(|before| ticket < before)
            {
                return violation("tickets", format!("{ticket:?} is durable, given {:?}", self.given));
            }
            self.reported = Some(ticket);
            self.model.durable(ticket);
        }
        Ok(())
    }

    pub(super) fn wait(&mut self) -> Check {
        for _ in 0..IDLES_MAX {
            self.poll()?;
            if self.reported >= self.given {
                return Ok(());
            }
            self.harness.idle();
        }
        violation("tickets", format!("{:?} never became durable", self.given))
    }

    pub(super) fn close_and_reopen(&mut self) -> Check {
        self.harness.engine().close().map_err(failed)?;
        if let Some(given) = self.given {
            self.model.durable(given);
        }
        self.harness.reopen_after_close();
        self.reopened();
        Ok(())
    }

    fn reopened(&mut self) {
        self.model.crashed();
        self.given = None;
        self.reported = None;
        for delivery in std::mem::take(&mut self.flights) {
            self.remember_used(delivery);
        }
    }
}

pub(super) fn failed(error: impl std::fmt::Display) -> Violation {
    Violation::new("storage", error.to_string())
}
