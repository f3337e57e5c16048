//! Calls handlers on the caller's runtime.
//!
//! Each handler is polled once where it was picked up. If it is ready, it costs no task and no timer; otherwise it
//! gets its own task with a timeout. Whatever happens to that task, the end of its call is reported.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redrive_core::FailureKind;
use tokio::sync::watch;

use super::exchange::Exchange;
use super::yielding::let_others_run;
use crate::dispatch::{CallId, Ended, Start};
use crate::failure::{Failure, TimedOut};
use crate::handler::{AnyHandler, Attempting, Calling};

/// Calls in a row that are ready at once before the runner lets other tasks of its thread run.
const CALLS_IN_A_ROW_MAX: u32 = 64;

/// A task that calls handlers; there is one per worker thread of the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) pipeline: Arc<str>,
    pub(crate) handler: AnyHandler,
    pub(crate) timeout: Duration,
    /// Becomes `true` when running calls are abandoned.
    pub(crate) cancelled: watch::Receiver<bool>,
}

impl Runner {
    pub(crate) async fn run(self) {
        let mut in_a_row = 0;
        loop {
            let Some(start) = self.exchange.next_start() else {
                in_a_row = 0;
                self.exchange.wait_for_starts().await;
                // As below: a task that was woken on this thread while the runner slept goes first.
                let_others_run().await;
                continue;
            };
            in_a_row += 1;
            let waits = self.begin(start);
            // A new task is queued where only this thread can run it. If the next handler blocked the thread, the
            // task would be stuck behind it, so let it run first.
            if waits || in_a_row == CALLS_IN_A_ROW_MAX {
                in_a_row = 0;
                let_others_run().await;
            }
        }
    }

    /// Polls a call once. Returns whether it is pending and got its own task.
    fn begin(&self, start: Start) -> bool {
        let Start { call, message, attempt, replays, origin } = start;
        let calling = Calling { message, attempt, replays, origin, pipeline: &self.pipeline };
        let first = catch_unwind(AssertUnwindSafe(|| {
            let mut attempt = self.handler.start(calling);
            match attempt.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => Err(result),
                Poll::Pending => Ok(attempt),
            }
        }));
        match first {
            Ok(Err(result)) => self.exchange.end(call, result.into()),
            Err(panic) => self.exchange.end(call, crashed(&*panic)),
            Ok(Ok(attempt)) => {
                let report = CallReport { exchange: Arc::clone(&self.exchange), call: Some(call) };
                tokio::spawn(finish(attempt, report, self.timeout, self.cancelled.clone()));
                return true;
            }
        }
        false
    }
}

/// Completes a pending call.
async fn finish(
    attempt: Attempting,
    report: CallReport,
    timeout: Duration,
    mut cancelled: watch::Receiver<bool>,
) {
    let mut attempt = CatchPanic(attempt);
    let ended = tokio::select! {
        biased;
        ended = tokio::time::timeout(timeout, &mut attempt) => ended,
        _ = cancelled.wait_for(|cancelled| *cancelled) => Ok(Ended::Unfinished),
    };
    let ended = ended.unwrap_or_else(|_| Ended::Failed(timed_out(timeout)));
    // Drop the handler's future before reporting the end, so that a panic in its destructors counts too.
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(attempt)));
    report.send(dropped.map_or_else(|panic| crashed(&*panic), |()| ended));
}

fn timed_out(after: Duration) -> Failure {
    Failure::transient(TimedOut { after }).of_kind(FailureKind::Timeout).ambiguous()
}

/// Reports the end of a call exactly once; if it is dropped before that, the call is unfinished.
struct CallReport {
    exchange: Arc<Exchange>,
    call: Option<CallId>,
}

impl CallReport {
    fn send(mut self, ended: Ended) {
        if let Some(call) = self.call.take() {
            self.exchange.end_soon(call, ended);
        }
    }
}

impl Drop for CallReport {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.exchange.end(call, Ended::Unfinished);
        }
    }
}

/// An attempt that a panic ends.
struct CatchPanic(Attempting);

impl Future for CatchPanic {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(poll) => poll.map(Into::into),
            Err(panic) => Poll::Ready(crashed(&*panic)),
        }
    }
}

impl From<Result<(), Failure>> for Ended {
    fn from(result: Result<(), Failure>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(failure) => Self::Failed(failure),
        }
    }
}

fn crashed(panic: &(dyn Any + Send)) -> Ended {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "a panic without a text".to_owned());
    Ended::Failed(Failure::crash(format!("the handler panicked: {text}")))
}
