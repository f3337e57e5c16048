//! Between the dispatch thread and the runners: starts go one way, ends the other. No lock and no syscall per message.

use std::pin::pin;

use super::wake::Wake;
use super::yielding::let_others_run;
use crate::dispatch::{CallId, Ended, Start};
use crate::sync::{Arc, ArrayQueue, AtomicBool, AtomicUsize, Notify, Ordering, SegQueue};

#[derive(Debug)]
pub(crate) struct Exchange {
    /// As large as there are permits: a start always fits.
    starts: ArrayQueue<Start>,
    /// Bounded by the calls that run: each ends once.
    ends: SegQueue<(CallId, Ended)>,
    dispatch: Arc<Wake>,
    idle_runners: AtomicUsize,
    more_starts: Notify,
    /// Ends wait to be passed to the dispatch thread, and a task that will do so is running.
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
        // Both sides change the same number, so one comes first: a runner that comes later has the starts in view when it
        // looks, and one that came earlier is seen to be idle here. A load would not do.
        if self.idle_runners.fetch_add(0, Ordering::AcqRel) > 0 {
            // All of them, and from here: a runner that is woken by another one is queued on that one's thread, where
            // nobody can take it from once a handler blocks the thread.
            self.more_starts.notify_waiters();
        }
    }

    fn wake_a_runner(&self) {
        if self.idle_runners.load(Ordering::Relaxed) > 0 {
            self.more_starts.notify_one();
        }
    }

    /// Nothing has ended for a while although calls run. Perhaps one of them blocks the very thread that was to watch the
    /// runtime's timers and sockets, while the other threads sleep; a runner that wakes up makes its thread take over.
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

    /// Reports how a call ended.
    pub(crate) fn end(&self, call: CallId, ended: Ended) {
        self.ends.push((call, ended));
        self.dispatch.call();
    }

    /// Like [`Self::end`], for a call that had a task of its own: the dispatch thread is called once for all the calls
    /// that a thread of the runtime brings to their end in one go, and not for each.
    pub(crate) fn end_soon(&self, call: CallId, ended: Ended) {
        self.ends.push((call, ended));
        if !self.telling.swap(true, Ordering::SeqCst) {
            self.more_ends.notify_one();
        }
    }

    /// Tells the dispatch thread of ends, as a task of the runtime. Where it cannot run, the thread looks by itself
    /// before long, as it does while calls run.
    pub(crate) async fn tell_ends(&self) {
        loop {
            self.more_ends.notified().await;
            // The tasks that are ready now may end calls too.
            let_others_run().await;
            // Before the call: an end that comes between the two is told by the call, or once more.
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
