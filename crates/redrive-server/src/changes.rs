//! Runs requests that change something to their end, whatever their client does: one that disconnects midway must not
//! leave half of a discard behind.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use axum::response::{IntoResponse, Response};
use tokio::sync::Notify;

use crate::problem::{Code, Problem};

/// The maximum number of running changes whose clients have disconnected. A connected client uses one of a limited
/// number of connections; a disconnected one uses none, so its changes are counted.
const ABANDONED_MAX: usize = 64;

/// The running changes. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    running: AtomicUsize,
    abandoned: AtomicUsize,
    ended: Notify,
}

impl Changes {
    /// Carries out a request in a separate task, which continues when this future is dropped. Refused while too many
    /// changes of disconnected clients are running.
    pub async fn carry_out(&self, change: impl Future<Output = Response> + Send + 'static) -> Response {
        if self.0.abandoned.load(Ordering::SeqCst) >= ABANDONED_MAX {
            let message = "too many changes are still running whose clients have gone";
            let hint = "nothing was done; send it again after Retry-After, and wait for the answer";
            return Problem::new(Code::Busy, message, hint).into_response();
        }
        let running = Running::new(&self.0);
        let client = Client { running: Arc::downgrade(&running) };
        let task = tokio::spawn(async move {
            let response = change.await;
            drop(running);
            response
        });
        let ended = task.await;
        drop(client);
        match ended {
            Ok(response) => response,
            Err(error) => match error.try_into_panic() {
                // As if it had run here, so that the connection ends too.
                Ok(panic) => resume_unwind(panic),
                Err(_) => Problem::new(Code::Stopping, "the server is stopping", "look whether it was done")
                    .into_response(),
            },
        }
    }

    /// Waits until no change is running.
    pub async fn all_ended(&self) {
        loop {
            let ended = self.0.ended.notified();
            if self.0.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// A running change, dropped when it ends, even by a panic.
#[derive(Debug)]
struct Running {
    counts: Arc<Counts>,
    is_abandoned: AtomicBool,
}

impl Running {
    fn new(counts: &Arc<Counts>) -> Arc<Self> {
        counts.running.fetch_add(1, Ordering::SeqCst);
        Arc::new(Self { counts: Arc::clone(counts), is_abandoned: AtomicBool::new(false) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_abandoned.load(Ordering::SeqCst) {
            self.counts.abandoned.fetch_sub(1, Ordering::SeqCst);
        }
        if self.counts.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.counts.ended.notify_waiters();
        }
    }
}

/// The client waiting for a change.
struct Client {
    running: Weak<Running>,
}

impl Drop for Client {
    fn drop(&mut self) {
        // Held here, so that the change cannot end between the check and the count.
        let Some(running) = self.running.upgrade() else { return };
        if !running.is_abandoned.swap(true, Ordering::SeqCst) {
            running.counts.abandoned.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn counts(changes: &Changes) -> (usize, usize) {
        (changes.0.running.load(Ordering::SeqCst), changes.0.abandoned.load(Ordering::SeqCst))
    }

    /// A change that has started when this returns and ends on request; its client is still connected.
    async fn begun(changes: &Changes) -> (tokio::task::JoinHandle<Response>, Arc<Notify>) {
        let (begin, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begins, ends) = (Arc::clone(&begin), Arc::clone(&end));
        let changes = changes.clone();
        let client = tokio::spawn(async move {
            let change = async move {
                begins.notify_one();
                ends.notified().await;
                "done".into_response()
            };
            changes.carry_out(change).await
        });
        begin.notified().await;
        (client, end)
    }

    #[tokio::test]
    async fn a_change_goes_on_without_its_client_and_is_waited_for() {
        let changes = Changes::default();
        let (client, end) = begun(&changes).await;
        assert_eq!(counts(&changes), (1, 0));
        client.abort();
        let _ = client.await;
        assert_eq!(counts(&changes), (1, 1));
        let waits = tokio::time::timeout(Duration::from_millis(20), changes.all_ended()).await;
        assert!(waits.is_err(), "it still runs");
        end.notify_one();
        changes.all_ended().await;
        assert_eq!(counts(&changes), (0, 0));
    }

    #[tokio::test]
    async fn clients_that_go_away_cannot_pile_up_changes() {
        let changes = Changes::default();
        let (present, end_present) = begun(&changes).await;
        let mut ends = Vec::new();
        for _ in 0..ABANDONED_MAX {
            let (client, end) = begun(&changes).await;
            client.abort();
            let _ = client.await;
            ends.push(end);
        }
        let refused = changes.carry_out(async { panic!("it must not begin") }).await;
        assert_eq!(refused.status(), Code::Busy.status());
        end_present.notify_one();
        assert_eq!(present.await.unwrap().status(), 200, "one whose client waits is no part of that");
        ends[0].notify_one();
        while counts(&changes).1 == ABANDONED_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(changes.carry_out(async { "done".into_response() }).await.status(), 200);
    }

    #[tokio::test]
    async fn a_change_that_panics_is_over() {
        let changes = Changes::default();
        let client = tokio::spawn({
            let changes = changes.clone();
            async move { changes.carry_out(async { panic!("on purpose") }).await }
        });
        assert!(client.await.unwrap_err().is_panic());
        changes.all_ended().await;
        assert_eq!(counts(&changes), (0, 0));
    }
}
