//! Key order: which message of a key may start, and which must be startable.

use std::collections::BTreeMap;

use redrive_core::Time;

use super::check::{Check, violation};
use super::model::Model;
use super::situation::{Maybe, Tracked};
use crate::engine::seam::DeliveryOrder;

impl Model {
    fn is_ordered(&self, tracked: &Tracked) -> bool {
        self.options.ordering == DeliveryOrder::Key && tracked.message.key().is_some()
    }

    /// Checks the key line of `seq`, which has just started: all earlier messages have to be terminal. If that was
    /// uncertain, it is now certain: the engine has relied on it, so it must hold even after a crash.
    pub(super) fn check_line(&mut self, seq: u64) -> Check {
        let Some(this) = self.messages.get(&seq) else { return Ok(()) };
        if !self.is_ordered(this) {
            return Ok(());
        }
        let key = this.message.key().unwrap_or_default().to_vec();
        for (other_seq, other) in &mut self.messages {
            if *other_seq == seq || other.twin || !other.is_key(&key) || other.now.is_terminal() {
                continue;
            }
            let stands_before = other.membership.surely && *other_seq < seq;
            // A claimed message does not run, but keeps its place until it is settled.
            let runs = other.now.is_in_flight() && !other.claimed;
            if !runs && !stands_before {
                continue;
            }
            let came_back = |maybe: &Maybe| !maybe.then.is_in_flight() && !stands_before;
            if other.maybe.as_ref().is_some_and(came_back) {
                other.resolve();
                continue;
            }
            if other.maybe.as_ref().is_some_and(|maybe| maybe.then.is_terminal()) {
                if !self.twins {
                    other.resolve();
                }
                continue;
            }
            let what = format!("{seq} started before {other_seq} of the same key: {other:?}");
            return violation("key_order", what);
        }
        if let Some(this) = self.messages.get_mut(&seq) {
            this.membership.surely = true;
        }
        Ok(())
    }

    /// Records that a take returned with room to spare, so it has seen everything that was due.
    pub(super) fn take_saw_all(&mut self, now: Time) {
        for tracked in self.messages.values_mut() {
            let all = tracked.candidates().all(|s| s.waiting().is_some_and(|w| w.due_latest <= now));
            if all && tracked.membership.floating {
                tracked.membership.surely = true;
            }
        }
    }

    pub(super) fn mark_came_due(&mut self, now: Time) {
        use super::situation::Position;
        let mark = |at: &mut Position| {
            if let Position::Waiting(wait) = at {
                wait.came_due |= wait.due.is_some_and(|due| due <= now);
            }
        };
        for tracked in self.messages.values_mut() {
            mark(&mut tracked.now.at);
            if let Some(maybe) = &mut tracked.maybe {
                mark(&mut maybe.then.at);
            }
        }
    }

    /// How many messages must be startable at `now`: unordered due ones, unordered fresh ones, and key lines that are
    /// ready whichever of their members is first.
    pub(super) fn startable(&self, now: Time) -> Startable {
        let mut startable = Startable::default();
        if self.gated {
            return startable;
        }
        let is_ready =
            |t: &Tracked| !t.twin && t.is_certain() && t.now.waiting().is_some_and(|w| w.due_latest <= now);
        let mut lines: BTreeMap<&[u8], Vec<(u64, &Tracked)>> = BTreeMap::new();
        for (seq, tracked) in self.messages.iter().filter(|(_, t)| !t.is_over()) {
            if self.is_ordered(tracked) {
                lines.entry(tracked.message.key().unwrap_or_default()).or_default().push((*seq, tracked));
            } else if is_ready(tracked) {
                match tracked.now.waiting().and_then(|wait| wait.due) {
                    Some(_) => startable.due += 1,
                    None => startable.fresh += 1,
                }
            }
        }
        for (key, members) in lines {
            if self.unanswered.iter().any(|(new, _)| new.message.key() == Some(key)) {
                continue;
            }
            let first = members.iter().find(|(_, t)| t.membership.surely).map_or(u64::MAX, |(seq, _)| *seq);
            let quiet = members.iter().all(|(_, t)| !t.twin && t.is_certain() && !t.now.is_in_flight());
            // All candidates for the first place: the first message certainly in line, and those that may have joined
            // before it.
            let mut may_be_first = members.iter().filter(|(seq, _)| *seq <= first);
            if quiet && may_be_first.all(|(_, t)| is_ready(t)) {
                startable.lines += 1;
            }
        }
        startable
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Startable {
    pub due: usize,
    pub fresh: usize,
    pub lines: usize,
}

impl Startable {
    pub(super) fn total(&self) -> usize {
        self.due + self.fresh + self.lines
    }
}
