//! Changes of endpoints and of the whole table, for listeners, the log and the event stream.

use redrive_core::Time;

use super::guard::Stopped;
use super::record::{EndpointId, Record};
use crate::events::EventKind;

/// A change of an endpoint, or of the whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Flagged,
    Purged,
    /// A push was delivered to an endpoint that was flagged.
    Delivered,
    /// The subscriber registered, or registered again.
    Registered,
    /// A flag or a purge was undone.
    Undone,
    /// A stored subscription was removed.
    Removed,
    PurgingStopped(Stopped),
    PurgingResumed,
}

impl Change {
    /// The event for this change.
    pub const fn kind(self) -> EventKind {
        match self {
            Self::Flagged => EventKind::Flagged,
            Self::Purged => EventKind::Purged,
            Self::Delivered => EventKind::Cleared,
            Self::Registered => EventKind::Registered,
            Self::Undone => EventKind::Undone,
            Self::Removed => EventKind::Removed,
            Self::PurgingStopped(_) => EventKind::PurgingStopped,
            Self::PurgingResumed => EventKind::PurgingResumed,
        }
    }

    pub const fn name(self) -> &'static str {
        self.kind().name()
    }
}

/// A change with its subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    pub at: Time,
    /// The endpoint; `None` if the change concerns all.
    pub endpoint: Option<EndpointId>,
    /// The ids of the stored subscriptions concerned.
    pub ids: Vec<String>,
    pub change: Change,
    /// The flag or the purge; after an undo, the flag that is in effect again.
    pub record: Option<Record>,
}

impl Changed {
    pub(super) fn of_all(at: Time, change: Change) -> Self {
        Self { at, endpoint: None, ids: Vec::new(), change, record: None }
    }

    pub(super) fn of_id(at: Time, endpoint: EndpointId, id: &str, change: Change) -> Self {
        Self { at, endpoint: Some(endpoint), ids: vec![id.to_owned()], change, record: None }
    }
}
