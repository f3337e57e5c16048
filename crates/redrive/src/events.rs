//! Events of a pipeline, for subscribers: a bounded ring of numbered events.
//!
//! Readers read at their own pace and block nothing. A reader that is too slow learns how many events it has missed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::Time;
use serde_json::Value;
use tokio::sync::watch;

/// Events that are kept for readers that reconnect.
pub const EVENTS_MAX: usize = 10_000;
/// Bytes of the events that are kept.
pub const BYTES_MAX: usize = 8 << 20;
/// Most events of one read.
const READ_MAX: usize = 256;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    DeadLetter,
    /// The breaker opened or closed.
    Breaker,
    /// Any other health change of the sink.
    Health,
    Replay,
    Flagged,
    Purged,
    /// A push was delivered to an endpoint that was flagged.
    Cleared,
    Registered,
    Undone,
    Removed,
    PurgingStopped,
    PurgingResumed,
}

impl EventKind {
    pub const ALL: [Self; 12] = [
        Self::DeadLetter,
        Self::Breaker,
        Self::Health,
        Self::Replay,
        Self::Flagged,
        Self::Purged,
        Self::Cleared,
        Self::Registered,
        Self::Undone,
        Self::Removed,
        Self::PurgingStopped,
        Self::PurgingResumed,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead_letter",
            Self::Breaker => "breaker",
            Self::Health => "health",
            Self::Replay => "replay",
            Self::Flagged => "flagged",
            Self::Purged => "purged",
            Self::Cleared => "cleared",
            Self::Registered => "registered",
            Self::Undone => "undone",
            Self::Removed => "removed",
            Self::PurgingStopped => "purging_stopped",
            Self::PurgingResumed => "purging_resumed",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 1 for the first one of the process.
    pub number: u64,
    pub kind: EventKind,
    /// A JSON object on one line.
    pub data: String,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    pub events: Vec<Arc<Event>>,
    /// How many earlier events have already left the ring.
    pub missed: u64,
}

/// The events of one pipeline. Clones share them.
#[derive(Clone)]
pub struct Events {
    shared: Arc<EventRing>,
}

struct EventRing {
    ring: Mutex<Ring>,
    /// The number of the latest event.
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    latest: u64,
}

impl Default for Events {
    fn default() -> Self {
        Self { shared: Arc::new(EventRing { ring: Mutex::default(), latest: watch::Sender::new(0) }) }
    }
}

impl Events {
    /// Adds an event; `at` and `type` are added to its fields.
    pub fn push(&self, kind: EventKind, at: Time, fields: Value) {
        let mut data = serde_json::Map::new();
        data.insert("type".to_owned(), kind.name().into());
        data.insert("at".to_owned(), crate::timestamp::print(at).into());
        if let Value::Object(fields) = fields {
            data.extend(fields);
        }
        let number = self.ring().push(kind, Value::Object(data).to_string());
        self.shared.latest.send_replace(number);
    }

    /// The events after `number`, as many as fit into one read.
    pub fn after(&self, number: u64) -> Read {
        self.ring().after(number)
    }

    /// The number of the latest event; zero if there was none.
    pub fn latest(&self) -> u64 {
        *self.shared.latest.borrow()
    }

    /// A receiver that is notified of each new event.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared.latest.subscribe()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, kind: EventKind, data: String) -> u64 {
        self.latest += 1;
        self.bytes += data.len();
        self.events.push_back(Arc::new(Event { number: self.latest, kind, data }));
        while self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.data.len();
        }
        self.latest
    }

    fn after(&self, number: u64) -> Read {
        let number = number.min(self.latest);
        let held = self.latest - self.events.len() as u64;
        let skip = usize::try_from(number.saturating_sub(held)).unwrap_or(usize::MAX);
        let events = self.events.iter().skip(skip).take(READ_MAX).cloned().collect();
        Read { events, missed: held.saturating_sub(number) }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("latest", &self.latest()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn numbers(read: &Read) -> Vec<u64> {
        read.events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn a_reader_gets_what_came_after_its_last_event_in_order() {
        let events = Events::default();
        assert_eq!(events.after(0), Read { events: Vec::new(), missed: 0 });
        for n in 1..=3 {
            events.push(EventKind::Purged, Time::from_millis(0), json!({ "n": n }));
        }
        let read = events.after(1);
        assert_eq!((numbers(&read), read.missed), (vec![2, 3], 0));
        assert_eq!(read.events[0].data, r#"{"at":"1970-01-01T00:00:00.000Z","n":2,"type":"purged"}"#);
        assert!(events.after(3).events.is_empty() && events.after(99).events.is_empty());
    }

    #[test]
    fn a_reader_that_is_too_slow_is_told_how_much_it_missed() {
        let events = Events::default();
        for _ in 0..EVENTS_MAX + 7 {
            events.push(EventKind::Purged, Time::ZERO, json!({}));
        }
        let read = events.after(2);
        assert_eq!((read.missed, read.events[0].number, read.events.len()), (5, 8, READ_MAX));
    }

    #[test]
    fn large_events_leave_room_for_fewer() {
        let events = Events::default();
        for _ in 0..100 {
            events.push(EventKind::Purged, Time::ZERO, json!({ "text": "x".repeat(BYTES_MAX / 10) }));
        }
        let read = events.after(0);
        assert!(read.events.len() < 11 && read.missed > 88, "{}", read.events.len());
        assert_eq!(read.events.last().unwrap().number, 100);
    }
}
