//! How the table of subscriptions stands: plain numbers.

use redrive_core::Time;

use super::decide::Purge;
use super::guard::Stopped;

/// How the table stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub purge: Purge,
    /// About how many endpoints took a push in the last one to two weeks, and at least as many as are stored; purged ones
    /// are not among them.
    pub active: u64,
    pub flagged: u64,
    pub purged: u64,
    pub stored: u64,
    /// What stopped purging.
    pub stopped: Option<Stopped>,
    /// No more flags and purges are remembered.
    pub is_full: bool,
    /// Changes that could not be made durable.
    pub unwritten: u64,
    /// Purges that the owner's system has still to hear of. None where no announcements are configured.
    pub unannounced: u64,
    /// When the first of them happened.
    pub unannounced_since: Option<Time>,
    /// Stored subscriptions that were made with a key which the sink does not have any more.
    pub without_key: u64,
    /// Damaged lines in the log, as of the last check.
    pub damaged: u64,
}
