//! Yielding between tasks of the runtime.

use std::future::poll_fn;
use std::task::Poll;

/// Moves the task to the end of its thread's queue. Unlike tokio's `yield_now`, it leaves the task where other
/// threads can steal it, so that a runner is not stuck behind a task that blocks the thread.
pub(crate) async fn let_others_run() {
    let mut went = false;
    poll_fn(|context| {
        if std::mem::replace(&mut went, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
