//! The queues between the polling thread and the engine: notes one way, orders the other, each with a call that wakes
//! the other side. Model-checked in `redrive-models`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::{AtomicBool, Mutex, MutexGuard, OnceLock, Ordering, PoisonError, Thread, current};

type Wake = Arc<dyn Fn() + Send + Sync>;

/// What was sent and not yet received, and how to wake the receiver.
pub struct Handover<N, O> {
    notes: Mutex<Vec<N>>,
    orders: Mutex<VecDeque<O>>,
    wake: Mutex<Option<Wake>>,
    reader: OnceLock<Thread>,
    /// The engine has something to do soon that no event will wake it for.
    wake_requested: AtomicBool,
    /// Whether the consumer is a member of its group.
    member: AtomicBool,
}

impl<N, O> Default for Handover<N, O> {
    fn default() -> Self {
        Self {
            notes: Mutex::new(Vec::new()),
            orders: Mutex::new(VecDeque::new()),
            wake: Mutex::new(None),
            reader: OnceLock::new(),
            wake_requested: AtomicBool::new(false),
            member: AtomicBool::new(false),
        }
    }
}

impl<N, O> std::fmt::Debug for Handover<N, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

impl<N, O> Handover<N, O> {
    pub fn note_membership(&self, is_member: bool) {
        self.member.store(is_member, Ordering::SeqCst);
    }

    pub fn is_member(&self) -> bool {
        self.member.load(Ordering::SeqCst)
    }

    pub fn tell(&self, note: N) {
        locked(&self.notes).push(note);
        self.call_engine();
    }

    /// Takes all notes since the last call, in order; `into` is emptied first.
    pub fn drain(&self, into: &mut Vec<N>) {
        into.clear();
        std::mem::swap(&mut *locked(&self.notes), into);
    }

    pub fn order(&self, order: O) {
        locked(&self.orders).push_back(order);
        self.call_reader();
    }

    pub fn next_order(&self) -> Option<O> {
        locked(&self.orders).pop_front()
    }

    pub fn on_wake(&self, wake: Wake) {
        *locked(&self.wake) = Some(wake);
    }

    pub fn call_engine(&self) {
        let wake = locked(&self.wake).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Registers the calling thread as the polling thread.
    pub fn be_reader(&self) {
        let _ = self.reader.set(current());
    }

    /// Asks for the engine to be woken soon.
    pub fn request_wake(&self) {
        self.wake_requested.store(true, Ordering::SeqCst);
    }

    /// Wakes the engine if it asked for that.
    pub fn wake_engine_if_requested(&self) {
        if self.wake_requested.swap(false, Ordering::SeqCst) {
            self.call_engine();
        }
    }

    pub fn call_reader(&self) {
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
