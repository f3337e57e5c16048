//! The primitives of the hand-overs, under the model checker. Waits never time out here, so that a lost wake-up shows
//! as a deadlock.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) use std::sync::{OnceLock, PoisonError};

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(crate) use shuttle::thread::{Thread, current};

pub(crate) fn park_timeout(_longest: Duration) {
    shuttle::thread::park();
}

/// Replaces crossbeam's bounded queue.
#[derive(Debug)]
pub(crate) struct ArrayQueue<T> {
    items: Mutex<VecDeque<T>>,
    capacity: usize,
}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { items: Mutex::new(VecDeque::new()), capacity }
    }

    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut items = lock(&self.items);
        if items.len() == self.capacity {
            return Err(item);
        }
        items.push_back(item);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<T> {
        lock(&self.items).pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.items).is_empty()
    }
}

/// Replaces crossbeam's unbounded queue.
#[derive(Debug)]
pub(crate) struct SegQueue<T>(Mutex<VecDeque<T>>);

impl<T> SegQueue<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    pub(crate) fn push(&self, item: T) {
        lock(&self.0).push_back(item);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        lock(&self.0).pop_front()
    }
}

/// Replaces tokio's `Notify`: `notify_one` leaves a permit if no task waits, `notify_waiters` wakes the waiting ones.
/// Each operation is one atomic step, as tokio guarantees; others may run before it.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    /// The checker does not see this lock, so that dropping needs no step.
    waiters: std::sync::Mutex<Waiters>,
    /// Marks a step before which others may run.
    step: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiters {
    has_permit: bool,
    next: u64,
    waiting: Vec<(u64, Option<Waker>)>,
}

#[derive(Debug)]
pub(crate) struct Notified<'n> {
    notify: &'n Notify,
    /// `None` until it waits.
    number: Option<u64>,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        Notified { notify: self, number: None }
    }

    pub(crate) fn notify_one(&self) {
        self.let_others_run();
        let mut waiters = self.waiters();
        let woken = (!waiters.waiting.is_empty()).then(|| waiters.waiting.remove(0));
        waiters.has_permit |= woken.is_none();
        drop(waiters);
        woken.into_iter().for_each(wake);
    }

    pub(crate) fn notify_waiters(&self) {
        self.let_others_run();
        let woken = std::mem::take(&mut self.waiters().waiting);
        woken.into_iter().for_each(wake);
    }

    fn let_others_run(&self) {
        self.step.fetch_add(1, Ordering::SeqCst);
    }

    fn waiters(&self) -> std::sync::MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake((_, waker): (u64, Option<Waker>)) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Waiters {
    fn add(&mut self, waker: Option<Waker>) -> u64 {
        self.next += 1;
        self.waiting.push((self.next, waker));
        self.next
    }
}

impl Notified<'_> {
    /// Registers it, so that it is notified even before it is first polled.
    pub(crate) fn enable(mut self: Pin<&mut Self>) {
        self.notify.let_others_run();
        let number = self.notify.waiters().add(None);
        self.number = Some(number);
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.notify.let_others_run();
        let waker = Some(context.waker().clone());
        let mut waiters = self.notify.waiters();
        if std::mem::take(&mut waiters.has_permit) {
            return Poll::Ready(());
        }
        let Some(number) = self.number else {
            let number = waiters.add(waker);
            drop(waiters);
            self.number = Some(number);
            return Poll::Pending;
        };
        match waiters.waiting.iter_mut().find(|(waiting, _)| *waiting == number) {
            Some((_, waiting)) => {
                *waiting = waker;
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let own = self.number;
        self.notify.waiters().waiting.retain(|(number, _)| Some(*number) != own);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
