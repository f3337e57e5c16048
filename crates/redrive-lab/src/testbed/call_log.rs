//! What a testbed reports of its messages while it runs. Any thread may report.

use std::fmt::Debug;
use std::time::Duration;

/// Times are counted from the beginning of the run.
pub trait CallLog: Send + Sync + Debug {
    fn arrived(&self, number: u64, at: Duration);

    /// A call begins. Returns its number for this message, from 1.
    fn called(&self, number: u64, at: Duration) -> u16;

    fn failed(&self, at: Duration);

    fn succeeded(&self, number: u64, at: Duration);

    fn died(&self, number: u64, at: Duration);

    /// Messages that have had their first call.
    fn started(&self) -> u64;

    /// Messages that have ended.
    fn ended(&self) -> u64;

    /// Of these, dead letters.
    fn dead(&self) -> u64;
}
