//! What happened to an endpoint, or to all: what listeners, the log and the event stream get.

use redrive_core::Time;

use super::guard::Stopped;
use super::record::{EndpointId, Record};

/// What happened to an endpoint, or to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Flagged,
    Purged,
    /// A push was delivered to an endpoint that was flagged.
    Delivered,
    /// The subscriber registered, or registered again.
    Registered,
    /// Somebody took a flag or a purge back.
    Undone,
    /// A stored subscription was removed.
    Removed,
    PurgingStopped(Stopped),
    PurgingResumed,
}

impl Change {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flagged => "flagged",
            Self::Purged => "purged",
            Self::Delivered => "cleared",
            Self::Registered => "registered",
            Self::Undone => "undone",
            Self::Removed => "removed",
            Self::PurgingStopped(_) => "purging_stopped",
            Self::PurgingResumed => "purging_resumed",
        }
    }
}

/// A change with what it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    pub at: Time,
    /// `None` for what concerns all.
    pub endpoint: Option<EndpointId>,
    /// The id of the stored subscription, if it is one.
    pub id: Option<String>,
    pub change: Change,
    /// The flag or the purge.
    pub record: Option<Record>,
}

impl Changed {
    pub(super) fn of_all(at: Time, change: Change) -> Self {
        Self { at, endpoint: None, id: None, change, record: None }
    }
}
