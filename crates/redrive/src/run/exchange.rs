//! Queues between the dispatch thread and the runners: starts in one direction, ended calls in the other. No lock and
//! no syscall per message.

use std::pin::pin;

use super::wake::Wake;
use super::yielding::let_others_run;
use crate::dispatch::{CallId, Ended, Start};
use crate::sync::{Arc, ArrayQueue, AtomicBool, AtomicUsize, Notify, Ordering, SegQueue};

#[derive(Debug)]
pub(crate) struct Exchange {
    /// As large as the number of permits, so a start always fits.
    starts: ArrayQueue<Start>,
    /// Bounded by the running calls, since each ends once.
    ends: SegQueue<(CallId, Ended)>,
    dispatch: Arc<Wake>,
    idle_runners: AtomicUsize,
    more_starts: Notify,
    /// Whether ended calls wait for the dispatch thread to be notified, and a task is about to do that.
    telling: AtomicBool,
    more_ends: Notify,
}

impl Exchange {
    pub(crate) fn new(concurrency: usize, dispatch: Arc<Wake>) -> Self {
        Self {
            starts: ArrayQueue::new(concurrency.max(1)),
            ends: SegQueue::new(),
            dispatch,
            idle_runners: AtomicUsize::new(0),
            more_starts: Notify::new(),
            telling: AtomicBool::new(false),
            more_ends: Notify::new(),
        }
    }

    /// Offers calls to the runners.
    pub(crate) fn start(&self, starts: &mut Vec<Start>) {
        if starts.is_empty() {
            return;
        }
        for start in starts.drain(..) {
            if let Err(start) = self.starts.push(start) {
                self.ends.push((start.call, Ended::Unfinished));
            }
        }
        // A read-modify-write on both sides orders them: a runner that becomes idle later sees the starts when it
        // checks, and one that became idle earlier is counted here. A plain load would not guarantee that.
        if self.idle_runners.fetch_add(0, Ordering::AcqRel) > 0 {
            // Wake all of them, and from this thread: a task woken by another runner is queued on that runner's
            // thread, where no other thread can steal it once a handler blocks the thread.
            self.more_starts.notify_waiters();
        }
    }

    fn wake_a_runner(&self) {
        if self.idle_runners.load(Ordering::Relaxed) > 0 {
            self.more_starts.notify_one();
        }
    }

    /// Called when no call has ended for a while although some run. A handler may be blocking the thread that drives
    /// the runtime's timers and sockets while the other threads sleep; waking a runner makes its thread take over.
    pub(crate) fn nudge(&self) {
        self.wake_a_runner();
    }

    /// The next call for a runner.
    pub(crate) fn next_start(&self) -> Option<Start> {
        self.starts.pop()
    }

    /// Sleeps until there may be starts.
    pub(crate) async fn wait_for_starts(&self) {
        let mut notified = pin!(self.more_starts.notified());
        notified.as_mut().enable();
        self.idle_runners.fetch_add(1, Ordering::AcqRel);
        if self.starts.is_empty() {
            notified.await;
        }
        self.idle_runners.fetch_sub(1, Ordering::AcqRel);
    }

    /// Reports the end of a call.
    pub(crate) fn end(&self, call: CallId, ended: Ended) {
        self.ends.push((call, ended));
        self.dispatch.call();
    }

    /// Like [`Self::end`], for a call that had its own task: the dispatch thread is woken once for all calls that a
    /// runtime thread completes in one go, not for each of them.
    pub(crate) fn end_soon(&self, call: CallId, ended: Ended) {
        self.ends.push((call, ended));
        if !self.telling.swap(true, Ordering::SeqCst) {
            self.more_ends.notify_one();
        }
    }

    /// Notifies the dispatch thread of ended calls, as a task of the runtime. If this task cannot run, the thread
    /// still finds them soon, because it polls while calls run.
    pub(crate) async fn tell_ends(&self) {
        loop {
            self.more_ends.notified().await;
            // The tasks that are ready now may end calls too.
            let_others_run().await;
            // Reset before the call: a call that ends in between is covered by this notification, or causes another
            // one.
            self.telling.store(false, Ordering::SeqCst);
            self.dispatch.call();
        }
    }

    pub(crate) fn next_end(&self) -> Option<(CallId, Ended)> {
        self.ends.pop()
    }

    /// Takes back a call that no runner has begun.
    pub(crate) fn take_back(&self) -> Option<CallId> {
        self.starts.pop().map(|start| start.call)
    }
}
