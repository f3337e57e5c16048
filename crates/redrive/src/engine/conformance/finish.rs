//! The end of a run: no more faults, and every message has to become terminal.

use redrive_core::Time;

use super::check::{Check, violation};
use super::command::How;
use super::suite::Suite;
use crate::engine::seam::TakeGate;

/// Far more rounds than any run needs: each one finishes a message or advances the clock to the next due time.
const ROUNDS_MAX: usize = 20_000;

/// Empty rounds in a row after which the engine is taken to be done.
const QUIET_MAX: u32 = 20;
/// The same limit while messages are still pending: a disk may be slow.
const STUCK_MAX: u32 = 20_000;

impl Suite {
    /// Opens the gate and finishes everything, relying only on what the engine reports.
    pub(super) fn finish(&mut self) -> Check {
        self.harness.engine().gate(TakeGate::Open);
        self.model.gated = false;
        self.wait()?;
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            self.model.high_water = self.model.high_water.max(self.now);
            self.take(16)?;
            let flights = std::mem::take(&mut self.flights);
            if !flights.is_empty() {
                let batch =
                    flights.into_iter().map(|delivery| self.settlement(delivery, How::Done)).collect();
                self.give(batch)?;
                self.wait()?;
                self.compare()?;
                continue;
            }
            let next_due = self.harness.engine().next_due();
            match next_due {
                Some(due) => self.now = due.max(Time::from_millis(self.now.as_millis() + 1)),
                // A message that was passed over for its key is not handed out before that is durable.
                None if quiet < QUIET_MAX
                    || (quiet < STUCK_MAX && self.harness.engine().counts().pending() > 0) =>
                {
                    quiet += 1;
                    self.poll()?;
                    self.harness.idle();
                }
                None => return self.check_end(),
            }
        }
        violation("no_stall", "it never comes to an end")
    }

    /// Checks that nothing is pending, and that everything that was uncertain has been settled.
    fn check_end(&mut self) -> Check {
        self.harness.idle();
        let counts = self.harness.engine().counts();
        if counts.pending() != 0 {
            return violation("conservation", format!("nothing more comes, but {counts:?}"));
        }
        for (seq, tracked) in &mut self.model.messages {
            let before = tracked.clone();
            if !tracked.keep(super::situation::Situation::is_terminal) {
                return violation("conservation", format!("{seq} was never handed out again: {before:?}"));
            }
        }
        self.model.unanswered.clear();
        self.letters(None, 7)?;
        self.all_messages()?;
        // Terminal messages must stay terminal when the store is reopened.
        self.close_and_reopen()?;
        self.letters(None, 50)?;
        self.all_messages()?;
        self.compare()
    }
}
