//! What the runtime tests share: messages, a policy with short waits, and a wait with a hang guard.
#![allow(dead_code)] // each test binary uses its own part

use std::future::Future;
use std::time::Duration;

use redrive::engine::Counts;
use redrive::{Message, PipelineHandle, Policy};
use redrive_core::PolicyBuilder;

/// No test takes this long unless something hangs.
pub(crate) const HANG_GUARD: Duration = Duration::from_secs(60);

pub(crate) fn message(id: impl Into<String>) -> Message {
    Message::builder(id).build().unwrap()
}

pub(crate) fn keyed(id: impl Into<String>, key: impl Into<String>) -> Message {
    Message::builder(id).key(key.into()).build().unwrap()
}

/// Retries almost at once.
pub(crate) fn quick(retries: u32) -> PolicyBuilder {
    Policy::fixed("1ms").retries(retries).jitter("none")
}

pub(crate) async fn guarded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_GUARD, future).await.expect("it hangs")
}

/// Waits until the counts are as wanted.
pub(crate) async fn until(handle: &PipelineHandle, wanted: impl Fn(&Counts) -> bool) {
    while !wanted(&handle.counts().await.unwrap()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until nothing is left to do.
pub(crate) async fn at_rest(handle: &PipelineHandle) {
    until(handle, |c| c.ready + c.delayed + c.key_wait + c.in_flight == 0).await;
}
