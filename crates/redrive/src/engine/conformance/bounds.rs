//! Bounds for the results of `counts` and `next_due`, given what is certain and what is not.

use redrive_core::Time;

use super::check::{Check, violation};
use super::model::Model;
use super::situation::{Situation, Tracked};
use crate::engine::letter::LetterState;
use crate::engine::seam::{Counts, DeliveryOrder};

impl Model {
    /// The minimum and maximum number of messages in a situation.
    fn range(&self, is: impl Fn(&Situation) -> bool) -> (u64, u64) {
        let sure = self.messages.values().filter(|t| !t.twin && t.candidates().all(&is)).count();
        if self.messages.values().any(|t| t.twin) {
            return (sure as u64, u64::MAX / 2);
        }
        let possible = self.messages.values().filter(|t| t.candidates().any(&is)).count();
        (sure as u64, possible as u64)
    }

    /// The minimum and maximum number of messages that are handed out without a verdict.
    fn undecided(&self) -> (u64, u64) {
        let out = || self.messages.values().filter(|t| !t.twin && t.now.is_in_flight());
        let surely = out().filter(|t| t.is_certain()).count() as u64;
        // A release may still show later.
        let is_release = |t: &&Tracked| {
            t.maybe
                .as_ref()
                .is_some_and(|maybe| maybe.then.waiting().is_some() && maybe.then.meta == t.now.meta)
        };
        let released = out().filter(is_release).count() as u64;
        (surely, if self.twins { u64::MAX } else { surely + released })
    }

    /// The minimum and maximum number of messages that wait for their due time, deferred or not.
    fn timed(&self, deferred: bool) -> (u64, u64) {
        let waits =
            |s: &Situation| s.meta.deferred == deferred && s.waiting().is_some_and(|wait| wait.due.is_some());
        // A message with a key may already wait for its key instead.
        let alone = |t: &Tracked| self.options.ordering == DeliveryOrder::None || t.message.key().is_none();
        let surely = |t: &&Tracked| !t.twin && alone(t) && t.candidates().all(waits);
        let surely = self.messages.values().filter(surely).count() as u64;
        let (_, most) = self.range(waits);
        // Engines without twins count unanswered messages at once, others only once they have read them.
        if self.twins { (0, u64::MAX) } else { (surely, most + self.unanswered.len() as u64) }
    }

    pub(super) fn check_counts(&self, counts: Counts) -> Check {
        let pending = counts.pending();
        let unanswered = self.unanswered.len() as u64;
        let (sure, possible) = self.range(|s| !s.is_terminal());
        let open = self.range(|s| s.letter_state() == Some(LetterState::Open));
        let discarded = self.range(|s| s.letter_state() == Some(LetterState::Discarded));
        let replaying = self.range(|s| s.letter_state() == Some(LetterState::Replaying));
        let erased = self.range(|s| s.letter_state() == Some(LetterState::Erased));
        // Resolved letters may be purged.
        let succeeded = (0, self.range(|s| s.letter_state() == Some(LetterState::Succeeded)).1);
        let not_due =
            |s: &Situation| s.waiting().is_some_and(|w| w.due.is_some_and(|due| due > self.high_water));
        let checks = [
            ("waiting and in flight", pending, (sure, possible + unanswered)),
            ("in flight", counts.in_flight, self.range(Situation::is_in_flight)),
            ("in flight without a verdict", counts.as_decided().in_flight, self.undecided()),
            ("held", counts.held, self.timed(true)),
            ("open letters", counts.letters_open, open),
            ("discarded letters", counts.letters_discarded, discarded),
            ("replaying letters", counts.letters_replaying, replaying),
            ("erased letters", counts.letters_erased, erased),
            ("succeeded letters", counts.letters_succeeded, succeeded),
            ("delayed and held", counts.delayed + counts.held, (self.range(not_due).0, u64::MAX)),
            ("delayed", counts.delayed, (0, self.timed(false).1)),
        ];
        for (what, told, (least, most)) in checks {
            if told < least || told > most {
                let text = format!("{what}: told {told}, known {least} to {most}; {counts:?}");
                return violation("conservation", text);
            }
        }
        Ok(())
    }

    /// `next_due` may be too early but never too late; it is `None` only if no message waits for a due time.
    pub(super) fn check_next_due(&self, told: Option<Time>) -> Check {
        if self.gated {
            return Ok(());
        }
        let live: Vec<&Tracked> = self.messages.values().filter(|t| !t.is_over()).collect();
        let alone = |t: &Tracked| {
            let ordered = self.options.ordering == DeliveryOrder::Key && t.message.key().is_some();
            let same_key = || live.iter().filter(|o| o.message.key() == t.message.key());
            !ordered || (self.unanswered.is_empty() && same_key().count() == 1)
        };
        let waits = |t: &&Tracked| {
            let wait = t.now.waiting().filter(|w| w.due.is_some() && !w.came_due)?;
            (!t.twin && t.is_certain() && alone(t)).then_some(wait.due_latest)
        };
        match (live.iter().filter_map(waits).min(), told) {
            (Some(real), Some(told)) if told <= real => Ok(()),
            (None, _) => Ok(()),
            (Some(real), told) => violation("next_due", format!("told {told:?}, the next is due {real:?}")),
        }
    }
}
