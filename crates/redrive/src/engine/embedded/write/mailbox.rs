//! A queue between two threads that is drained all at once.

use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct Mailbox<T> {
    state: Mutex<MailboxState<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct MailboxState<T> {
    items: Vec<T>,
    bytes: usize,
    closed: bool,
    /// Whether a receiver is sleeping. If not, posting makes no system call.
    awaited: bool,
}

/// Why an item was handed back.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    Full,
    Closed,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let state = MailboxState { items: Vec::new(), bytes: 0, closed: false, awaited: false };
        Self { state: Mutex::new(state), arrived: Condvar::new() }
    }
}

impl<T> Mailbox<T> {
    pub fn post(&self, item: T, bytes: usize) {
        self.put(self.lock(), item, bytes);
    }

    /// Like [`Mailbox::post`], unless `bytes_max` or more are waiting or the box is closed.
    pub fn offer(&self, item: T, bytes: usize, bytes_max: usize) -> Result<(), (T, Refused)> {
        let state = self.lock();
        if state.closed {
            return Err((item, Refused::Closed));
        }
        if state.bytes >= bytes_max {
            return Err((item, Refused::Full));
        }
        self.put(state, item, bytes);
        Ok(())
    }

    fn put(&self, mut state: MutexGuard<'_, MailboxState<T>>, item: T, bytes: usize) {
        state.items.push(item);
        state.bytes += bytes;
        let awaited = std::mem::take(&mut state.awaited);
        drop(state);
        if awaited {
            self.arrived.notify_all();
        }
    }

    /// The bytes waiting.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Takes everything that has arrived.
    pub fn drain(&self) -> Vec<T> {
        let mut state = self.lock();
        state.bytes = 0;
        std::mem::take(&mut state.items)
    }

    /// Waits for the next items; `None` once the box is closed and empty. Returns no items after `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Vec<T>> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.lock();
        while state.items.is_empty() {
            if state.closed {
                return None;
            }
            state.awaited = true;
            state = match until {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Some(Vec::new());
                    }
                    self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.bytes = 0;
        Some(std::mem::take(&mut state.items))
    }

    /// Closes the box and wakes the receiver.
    pub fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
