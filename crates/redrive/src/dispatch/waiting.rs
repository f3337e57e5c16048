//! Calls that wait in place for their next attempt, in blocking mode: each keeps its permit and its slot.

use std::collections::BTreeSet;

use redrive_core::Time;

use super::calls::CallId;

/// Bounded by the permits: who waits here holds one.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_due: BTreeSet<(Time, CallId)>,
}

impl Waiting {
    pub(super) fn insert(&mut self, due: Time, call: CallId) {
        self.by_due.insert((due, call));
    }

    /// The next call whose time has come.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<CallId> {
        let (_, call) = self.by_due.first().copied().filter(|(due, _)| *due <= now)?;
        self.by_due.pop_first();
        Some(call)
    }

    /// Ends the wait of one call; whether it waited.
    pub(super) fn remove(&mut self, call: CallId) -> bool {
        let found = self.by_due.iter().find(|(_, waiting)| *waiting == call).copied();
        found.is_some_and(|found| self.by_due.remove(&found))
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (Time, CallId)> + use<> {
        std::mem::take(&mut self.by_due).into_iter()
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Looks at all of them.
    pub(super) fn holds(&self, call: CallId) -> bool {
        self.by_due.iter().any(|(_, waiting)| *waiting == call)
    }

    pub(super) fn len(&self) -> usize {
        self.by_due.len()
    }
}
