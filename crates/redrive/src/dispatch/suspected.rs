//! How the machine treats deliveries that may have killed the process: they wait for their turn without a permit and run
//! alone. The next one starts once the end of the one before was given to the engine; after one that ran
//! in silence, once that end is stored.

use redrive_core::suspects::{self, Run};
use redrive_core::{Reason, Time, expired};

use super::calls::Call;
use super::health::HealthChange;
use super::machine::{Machine, Start};
use super::settling::Settling;
use crate::engine::{Delivery, Receipt, Suspect, Ticket};
use crate::settle;

/// Suspects that are announced together. If nobody can tell which of them ran when the process died, all of them have their
/// last run in silence, one after the other.
const ANNOUNCED_MAX: usize = 8;

impl Machine {
    /// A suspect came: it waits for its turn, or has had its last one.
    pub(super) fn suspect(&mut self, delivery: Delivery, suspect: Suspect, now: Time) {
        let Suspect { crashes, first_crash, last_crash } = suspect;
        self.has_met_suspects = true;
        if suspects::is_convicted(crashes, self.policy.crash_threshold()) {
            let message_id = delivery.message.id().to_owned();
            self.protection
                .note(HealthChange::Convicted { message_id, crashes, first_crash, last_crash }, now);
            return self.settle(settle::convicted(delivery, &suspect, now), None);
        }
        self.suspects.suspect(delivery, crashes);
        self.suspects_new += 1;
    }

    /// Whether a message was suspected of having ended a process since this one began.
    pub fn has_met_suspects(&self) -> bool {
        self.has_met_suspects
    }

    /// So many runs in a row ended without a clean stop, and nobody was suspected of it.
    pub fn note_unclean_ends(&mut self, runs: u32, now: Time) {
        self.protection.note(HealthChange::UncleanEnds { runs }, now);
    }

    /// Says how many suspects have come, once they have all been taken.
    pub(super) fn note_suspects(&mut self, now: Time) {
        let messages = std::mem::take(&mut self.suspects_new);
        if messages > 0 {
            self.protection.note(HealthChange::Suspected { messages }, now);
        }
    }

    /// Whoever waited for its turn until its deadline is not started any more.
    pub(super) fn expire_suspects(&mut self, now: Time) {
        while let Some(delivery) = self.suspects.take_next_if(|next| expired(&next.meta, now)) {
            self.settle(settle::dead(delivery, Reason::TtlExceeded, now), None);
        }
    }

    /// How the next suspect would run, if one may start now as far as this pipeline is concerned.
    pub fn suspect_turn(&self) -> Option<Run> {
        let run = self.suspects.turn()?;
        // It may be the only one that is left to ask by whether the sink is back.
        let allowed = self.protection.room(self.permits.used()) > 0 && self.permits.free() > 0;
        let may = !self.stopping && !self.paused && allowed;
        let quiet = run == Run::Alone || (self.running() == 0 && self.unsettled == 0);
        (may && quiet).then_some(run)
    }

    /// The suspect whose turn it is, and those that may be announced with it.
    pub fn suspects_in_turn(&self) -> Vec<Receipt> {
        self.suspects.in_turn(ANNOUNCED_MAX).map(|delivery| delivery.receipt).collect()
    }

    /// Whether a suspect waits for silence or runs in it: nothing else may start, here and in every other pipeline.
    pub fn wants_silence(&self) -> bool {
        self.suspects.want_silence()
    }

    /// Whether a suspect runs, or ran and its turn is not over.
    pub fn suspect_runs(&self) -> bool {
        self.suspects.is_running()
    }

    /// Starts the suspect whose turn it is. It has been announced.
    pub fn start_suspect(&mut self, now: Time, starts: &mut Vec<Start>) {
        let Some(permit) = self.permits.take() else { return };
        let is_probe = self.protection.admit_anybody();
        let silent = self.suspects.turn() == Some(Run::InSilence);
        let Some((delivery, crashes)) = self.suspects.start() else { return };
        let message_id = delivery.message.id().to_owned();
        let (threshold, left) =
            (suspects::convicted_at(self.policy.crash_threshold()), self.suspects.len() - 1);
        self.protection.note(HealthChange::RunsAlone { message_id, crashes, threshold, silent, left }, now);
        self.begin(Call { is_suspect: true, is_probe, ..Call::new(delivery, now, permit) }, starts);
    }

    /// The suspect whose turn it is belongs to somebody else by now.
    pub fn drop_suspect(&mut self) {
        if let Some(delivery) = self.suspects.take_next_if(|_| true) {
            self.settle(settle::released(delivery), None);
        }
    }

    /// The end of the suspect that ran was given to the engine. Its silence lasts until it is stored: until then it would be
    /// blamed for what others do.
    pub(super) fn suspect_given(&mut self, ticket: Ticket, now: Time) {
        let Settling::InBatch { cleared } = self.suspect_settling else { return };
        if self.suspects.want_silence() {
            self.suspect_settling = Settling::Given { ticket, cleared };
        } else {
            self.end_turn(cleared, now);
        }
    }

    /// What was given to the engine is stored.
    pub(super) fn suspect_durable(&mut self, is_stored: impl Fn(Ticket) -> bool, now: Time) {
        if let Settling::Given { ticket, cleared } = self.suspect_settling
            && is_stored(ticket)
        {
            self.end_turn(cleared, now);
        }
    }

    /// The next one may have its turn.
    fn end_turn(&mut self, cleared: bool, now: Time) {
        self.suspect_settling = Settling::No;
        self.suspects.ended(cleared);
        if self.suspects.is_empty() {
            self.protection.note(HealthChange::SuspectsCleared { cleared: self.suspects.cleared() }, now);
        }
    }

    /// Suspects that wait go back; the engine remembers what they are.
    pub(super) fn release_suspects(&mut self) {
        let waiting: Vec<Delivery> = self.suspects.take_all().collect();
        for delivery in waiting {
            self.settle(settle::released(delivery), None);
        }
    }
}
