//! How tasks of the runtime give way to each other.

use std::future::poll_fn;
use std::task::Poll;

/// Goes to the end of its thread's queue. Not tokio's `yield_now`, which keeps the task where no other thread can take it:
/// should the next task block the thread, a runner would be stuck behind it.
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
