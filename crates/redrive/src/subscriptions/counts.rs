//! The state of the table of subscriptions, as plain numbers.

use redrive_core::Time;

use super::decide::Purge;
use super::guard::Stopped;

/// The state of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub purge: Purge,
    /// Estimate of the endpoints that took a push in the last one to two weeks, without purged ones; at least the
    /// number of stored ones.
    pub active: u64,
    pub flagged: u64,
    pub purged: u64,
    pub stored: u64,
    /// Why purging is stopped.
    pub stopped: Option<Stopped>,
    /// Whether no more flags and purges can be stored.
    pub is_full: bool,
    /// Changes that could not be made durable.
    pub unwritten: u64,
    /// Purges that still have to be announced to the owner's system. 0 if announcements are not configured.
    pub unannounced: u64,
    /// When the oldest of them happened.
    pub unannounced_since: Option<Time>,
    /// Stored subscriptions made with a key that the sink no longer has.
    pub without_key: u64,
    /// Damaged lines in the log, as of the last check.
    pub damaged: u64,
}
