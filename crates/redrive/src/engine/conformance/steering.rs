//! The actions of an operator on waiting messages (list, make due, cancel), compared with the model.

use std::collections::BTreeMap;

use redrive_core::{Meta, Reason};

use super::check::{Check, Violation, violation};
use super::command::{Pick, Steer};
use super::suite::{Suite, failed};
use crate::engine::Claimed;
use crate::engine::pending::{PendingMessage, PendingState};
use crate::engine::seam::{EngineError, Settlement, Verdict};

/// How many entries one call may look at.
const LOOK_MAX: usize = 3;
/// The states that an engine can list.
const STATES: [PendingState; 4] =
    [PendingState::Ready, PendingState::Held, PendingState::Delayed, PendingState::KeyWait];

impl Suite {
    /// Lists all states page by page; both shown and missing messages are checked.
    pub(super) fn pending(&mut self, page: usize) -> Result<BTreeMap<u64, PendingMessage>, Violation> {
        let mut shown = BTreeMap::new();
        let mut by_state = [0_u64; STATES.len()];
        for (state, count) in STATES.into_iter().zip(&mut by_state) {
            for message in self.pending_in(state, page)? {
                self.model.check_pending(&message)?;
                *count += 1;
                let number = message.at.number;
                if shown.insert(number, message).is_some() && !self.model.twins {
                    return violation("pending", format!("{number} is listed twice"));
                }
            }
        }
        if !self.harness.lists_everything() {
            return Ok(shown);
        }
        for (seq, tracked) in &mut self.model.messages {
            let (listed, before) = (shown.contains_key(seq), tracked.clone());
            if !tracked.keep(|situation| situation.waiting().is_some() == listed) {
                return violation("pending", format!("{seq} is listed: {listed}; known is {before:?}"));
            }
        }
        let counts = self.harness.engine().counts();
        if [counts.ready, counts.held, counts.delayed, counts.key_wait] != by_state {
            return violation("pending", format!("listed by state are {by_state:?}, counted {counts:?}"));
        }
        Ok(shown)
    }

    fn pending_in(&mut self, state: PendingState, page: usize) -> Result<Vec<PendingMessage>, Violation> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let scan = self.harness.engine().scan_pending(state, after, page, LOOK_MAX).map_err(failed)?;
            if scan.scanned > LOOK_MAX as u64 || scan.messages.len() > page {
                return violation("pending", format!("looked at {} on a page of {page}", scan.scanned));
            }
            if let Some(other) = scan.messages.iter().find(|message| message.at.state != state) {
                return violation("pending", format!("{other:?} is listed as {state}"));
            }
            found.extend(scan.messages);
            if scan.next.is_none() {
                return Ok(found);
            }
            if scan.next <= after {
                return violation("pending", format!("the listing stands still at {after:?}"));
            }
            after = scan.next;
        }
    }

    /// Claims a listed message, which then ends as the operator chose, without having run.
    pub(super) fn steer(&mut self, which: Pick, how: Steer) -> Check {
        let listed = self.pending(50)?;
        let Some(shown) = listed.values().nth(usize::from(which) % listed.len().max(1)) else {
            return Ok(());
        };
        let delivery = match self.harness.engine().claim(&shown.at, self.now) {
            Ok(Claimed::Taken(delivery)) => *delivery,
            // It is just being moved into its key's line.
            Ok(Claimed::InFlight) if shown.at.state == PendingState::KeyWait => return Ok(()),
            Ok(other) => {
                return violation("pending", format!("{shown:?} is listed, but the claim says {other:?}"));
            }
            Err(EngineError::Unavailable(_)) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        if delivery.receipt.seq != shown.at.number {
            return violation("pending", format!("claimed was {:?}, got {:?}", shown.at, delivery.receipt));
        }
        self.model.claimed(&delivery)?;
        let meta = Meta { deferred: false, ..delivery.meta };
        let verdict = match how {
            // Only a message that waits for its due time can be made due.
            Steer::RetryNow if matches!(shown.at.state, PendingState::Ready | PendingState::KeyWait) => {
                Verdict::Release
            }
            Steer::RetryNow => Verdict::Retry { due: self.now, meta },
            Steer::Cancel => Verdict::Dead { reason: Reason::Cancelled, meta, at: self.now },
            Steer::LetGo => Verdict::Release,
        };
        self.give(vec![Settlement { delivery, verdict, attempt: None }])
    }
}
