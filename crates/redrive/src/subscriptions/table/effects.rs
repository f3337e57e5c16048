//! The effects of a change of the table, and the rows of a listing.

use std::sync::Arc;

use super::super::change::Changed;
use super::super::entry::Entry;
use super::super::record::{EndpointId, Record, SubscriptionState};
use super::super::stored::Stored;

/// What has to be written and announced after a change.
#[derive(Debug, Default)]
pub(in super::super) struct Effects {
    pub entries: Vec<Entry>,
    pub changes: Vec<Changed>,
}

impl Effects {
    pub(in super::super) fn and(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.changes.extend(other.changes);
    }
}

/// One row of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub endpoint: EndpointId,
    /// The ids of the stored subscriptions of this endpoint.
    pub ids: Vec<String>,
    /// The flag or purge; `None` if the endpoint is active.
    pub record: Option<Record>,
    /// The stored subscription that was registered last.
    pub stored: Option<Arc<Stored>>,
}

impl Listed {
    pub fn standing(&self) -> SubscriptionState {
        self.record.as_ref().map_or(SubscriptionState::Active, |record| record.standing)
    }
}
