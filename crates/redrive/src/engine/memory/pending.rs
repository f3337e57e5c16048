//! What waits in the memory engine: listed, and taken out by name.

use super::inner::Inner;
use crate::engine::Claimed;
use crate::engine::letter::SCAN_BYTES;
use crate::engine::pending::{PendingAt, PendingMessage, PendingScan, PendingState};
use crate::engine::seam::Delivery;

impl Inner {
    /// Where a message waits; `None` if it is terminal or out.
    pub(super) fn pending_at(&self, seq: u64) -> Option<PendingAt> {
        let entry = self.entries.get(&seq).filter(|entry| entry.in_flight.is_none())?;
        let state = Self::pending_state(entry)?;
        Some(PendingAt { number: seq, state, key: (seq, 0) })
    }

    /// By number, whatever the state.
    pub(super) fn scan_pending(
        &self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> PendingScan {
        let mut scan = PendingScan { next: after, ..PendingScan::default() };
        let Some(from) = after.map_or(Some(0), |(seq, _)| seq.checked_add(1)) else {
            return PendingScan::default();
        };
        let mut bytes = 0;
        for (seq, entry) in self.entries.range(from..) {
            if scan.messages.len() >= limit || bytes >= SCAN_BYTES || scan.scanned >= look_max as u64 {
                return scan;
            }
            scan.scanned += 1;
            scan.next = Some((*seq, 0));
            if let Some(at) = self.pending_at(*seq).filter(|at| at.state == state) {
                let found = PendingMessage {
                    at,
                    message: entry.message.clone(),
                    meta: entry.meta,
                    history: entry.history.clone(),
                    due: entry.due,
                };
                bytes += found.size();
                scan.messages.push(found);
            }
        }
        PendingScan { next: None, ..scan }
    }

    pub(super) fn claim(&mut self, seq: u64) -> Claimed {
        match self.entries.get(&seq) {
            Some(entry) if entry.in_flight.is_some() => Claimed::InFlight,
            Some(_) if self.pending_at(seq).is_some() => {
                // It is settled by the caller's verdict, whatever its key says.
                let delivery = Delivery { doomed: None, ..self.hand_out(seq) };
                self.claimed.insert(seq, self.key_of(seq));
                Claimed::Taken(Box::new(delivery))
            }
            _ => Claimed::NotThere,
        }
    }
}
