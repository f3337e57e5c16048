//! What a testbed reports about its messages while it runs. Any thread may report.

use std::fmt::Debug;
use std::time::Duration;

/// Receives the events of a run. Times are relative to the beginning of the run.
pub trait CallLog: Send + Sync + Debug {
    fn arrived(&self, number: u64, at: Duration);

    /// Records the beginning of a call. Returns its number for this message, from 1.
    fn called(&self, number: u64, at: Duration) -> u16;

    fn failed(&self, at: Duration);

    fn succeeded(&self, number: u64, at: Duration);

    fn died(&self, number: u64, at: Duration);

    /// The number of messages that have had their first call.
    fn started(&self) -> u64;

    /// The number of messages that have ended.
    fn ended(&self) -> u64;

    /// The number of dead letters.
    fn dead(&self) -> u64;
}
