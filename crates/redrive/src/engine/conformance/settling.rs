//! Settlements: every way a delivery can end, and receipts that were used before.

use redrive_core::decision::Retry;
use redrive_core::{Class, Decision, FailureKind, Meta, Reason, Time};

use super::check::{Check, violation};
use super::command::{How, Pick};
use super::suite::{Suite, failed};
use crate::engine::history::Attempt;
use crate::engine::seam::{Delivery, Settlement, Verdict};

/// How many used receipts are kept for reuse.
const USED_MAX: usize = 32;

impl Suite {
    pub(super) fn settle(&mut self, which: &[(Pick, How)]) -> Check {
        let mut batch = Vec::new();
        for (pick, how) in which {
            if self.flights.is_empty() {
                break;
            }
            let delivery = self.flights.swap_remove(usize::from(*pick) % self.flights.len());
            batch.push(self.settlement(delivery, *how));
        }
        self.give(batch)
    }

    pub(super) fn give(&mut self, batch: Vec<Settlement>) -> Check {
        let ticket = self.harness.engine().settle(batch.clone()).map_err(failed)?;
        if self.given.is_some_and(|before| before >= ticket) {
            return violation("tickets", format!("{ticket:?} after {:?}", self.given));
        }
        self.given = Some(ticket);
        for settlement in batch {
            self.model.settled(&settlement, ticket);
            // A release leaves no trace, so its receipt may still be valid.
            if settlement.verdict != Verdict::Release {
                self.remember_used(settlement.delivery);
            }
        }
        Ok(())
    }

    pub(super) fn remember_used(&mut self, delivery: Delivery) {
        self.used.push(delivery);
        if self.used.len() > USED_MAX {
            self.used.remove(0);
        }
    }

    pub(super) fn settle_again(&mut self, which: Pick, how: How) -> Check {
        if self.used.is_empty() {
            return Ok(());
        }
        let delivery = self.used[usize::from(which) % self.used.len()].clone();
        let settlement = self.settlement(delivery, how);
        let ticket = self.harness.engine().settle(vec![settlement]).map_err(failed)?;
        self.given = Some(ticket);
        Ok(())
    }

    pub(super) fn settlement(&mut self, delivery: Delivery, how: How) -> Settlement {
        let now = self.now;
        let retry_at = |delay_ms: u32| Time::from_millis(now.as_millis() + u64::from(delay_ms));
        let how = match (delivery.doomed, how) {
            (Some(reason), How::Done | How::Retry { .. } | How::Defer { .. } | How::Dead { .. }) => {
                let meta = Meta { deferred: false, ..delivery.meta };
                let verdict = Verdict::Dead { reason, meta, at: now };
                return Settlement { delivery, verdict, attempt: None };
            }
            (_, how) => how,
        };
        // All histories differ, so that a mix-up is noticed.
        self.attempts += 1;
        let marked = |class: Class, decision: Decision| {
            let mut meta = delivery.meta.after(class, &decision, now);
            meta.last_delay_ms = u64::from(self.attempts);
            meta
        };
        let retry =
            |due, counts| Decision::RetryAt(Retry { due, counts, tier: None, spends: u32::from(counts) });
        let (verdict, class, counted) = match how {
            How::Done => (Verdict::Done, None, true),
            How::Release => (Verdict::Release, None, true),
            How::Retry { delay_ms, class } | How::Defer { delay_ms, class } => {
                let (due, counts) = (retry_at(delay_ms), matches!(how, How::Retry { .. }));
                (Verdict::Retry { due, meta: marked(class, retry(due, counts)) }, Some(class), counts)
            }
            How::Dead { reason, class } => {
                let meta = marked(class, Decision::DeadLetter(reason));
                (Verdict::Dead { reason, meta, at: now }, Some(class), reason != Reason::HoldExpired)
            }
        };
        let attempt = class.map(|class| Attempt {
            number: delivery.meta.attempts + delivery.meta.uncounted + 1,
            at: now,
            took_ms: self.attempts,
            class,
            kind: kind_of(self.attempts),
            code: self.attempts.is_multiple_of(5).then(|| format!("E{}", self.attempts)),
            counted,
            ambiguous: self.attempts.is_multiple_of(3),
            error: format!("failure {}", self.attempts),
        });
        Settlement { delivery, verdict, attempt }
    }
}

/// Cycles through the kinds, so that every engine has to store each.
fn kind_of(attempts: u32) -> FailureKind {
    match attempts % 8 {
        0 => FailureKind::Status(400 + (attempts % 200) as u16),
        1 => FailureKind::Timeout,
        2 => FailureKind::Refused,
        3 => FailureKind::Reset,
        4 => FailureKind::Dns,
        5 => FailureKind::Tls,
        6 => FailureKind::Proxy,
        _ => FailureKind::Other,
    }
}
