//! The counters of the downstream.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::Applied;
use super::failure::FailureKind;
use crate::metrics::{Text, downstream as names};

/// Live counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    calls: AtomicU64,
    applied: AtomicU64,
    duplicates: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    in_flight: AtomicU64,
}

/// Counts a call as in flight until dropped, so that aborted calls are counted correctly too.
#[derive(Debug)]
pub(super) struct InFlight<'a>(&'a Counters);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    pub(super) fn begin(&self) -> InFlight<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }

    pub(super) fn applied(&self, applied: Applied) {
        let counter = match applied {
            Applied::First => &self.applied,
            Applied::Again => &self.duplicates,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, kind: FailureKind) {
        self.failures[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failures = FailureKind::ALL.map(|kind| get(&self.failures[kind as usize]));
        Stats {
            calls: get(&self.calls),
            applied: get(&self.applied),
            duplicates: get(&self.duplicates),
            failures,
            in_flight: get(&self.in_flight),
        }
    }
}

/// A snapshot of the counters since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    /// Calls to apply a message.
    pub calls: u64,
    /// Calls that applied a message for the first time.
    pub applied: u64,
    /// Calls whose message had already been applied.
    pub duplicates: u64,
    /// Failed calls, in the order of [`FailureKind::ALL`].
    pub failures: [u64; FailureKind::ALL.len()],
    /// Calls that have not ended.
    pub in_flight: u64,
}

impl Stats {
    pub fn failed(&self, kind: FailureKind) -> u64 {
        self.failures[kind as usize]
    }

    fn failures_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FailureKind::ALL.into_iter().map(|kind| (kind.name(), self.failed(kind)))
    }

    /// Renders the counters. `ids` is the number of ids in the ledger, including earlier runs, if known.
    pub fn to_json(&self, ids: Option<u64>, outage: bool) -> Value {
        let failures: serde_json::Map<_, _> =
            self.failures_by_name().map(|(name, count)| (name.to_owned(), count.into())).collect();
        json!({
            "calls": self.calls,
            "applied": self.applied,
            "duplicates": self.duplicates,
            "failures": failures,
            "in_flight": self.in_flight,
            "ids": ids,
            "outage": outage,
        })
    }

    pub fn to_metrics(&self, outage: bool) -> String {
        let mut text = Text::default();
        text.value(names::CALLS, self.calls);
        text.value(names::APPLIED, self.applied);
        text.value(names::DUPLICATES, self.duplicates);
        text.by_label(names::FAILURES, "kind", self.failures_by_name());
        text.value(names::IN_FLIGHT, self.in_flight);
        text.value(names::OUTAGE, u8::from(outage));
        text.into_string()
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "calls {}  applied {}  duplicates {}", self.calls, self.applied, self.duplicates)?;
        self.failures_by_name().try_for_each(|(name, count)| write!(f, "  {name} {count}"))
    }
}
