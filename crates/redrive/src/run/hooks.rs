//! Calls the user's hooks for dead letters, failed attempts, health changes and store notices, on the caller's
//! runtime: a slow hook holds back new work, but never settling.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redrive_core::{Message, Meta, Reason, Time};
use tokio::sync::mpsc;

use super::wake::Wake;
use crate::dispatch::{AttemptFailed, HealthChanged, HealthEntry, Parked};
use crate::engine::StoreNotice;
use crate::failure::Failure;

/// Events that wait for a hook; beyond this nothing new is taken.
const WAITING_MAX: usize = 1024;

/// A message that has just become a dead letter. The letter is already stored.
///
/// ```
/// use redrive::{DeadLetter, Failure, Message, Pipeline};
///
/// fn page_somebody(text: &str) {
///     println!("{text}");
/// }
///
/// async fn refuse(_: &Message) -> Result<(), Failure> {
///     Err(Failure::permanent("no such customer"))
/// }
///
/// let pipeline = Pipeline::new("orders")
///     .handler(refuse)
///     .on_dead_letter(|dead: &DeadLetter| page_somebody(&dead.to_string()));
/// ```
#[derive(Debug)]
pub struct DeadLetter {
    /// The pipeline.
    pub pipeline: Arc<str>,
    /// The letter's number in its pipeline.
    pub number: u64,
    /// The message.
    pub message: Message,
    /// Why it died.
    pub reason: Reason,
    /// The state of its attempts.
    pub meta: Meta,
    /// For a poison pill, when it first crashed its process or receiver; other failures may have come before.
    pub first_crash: Option<Time>,
    /// The last failure that the handler returned, with its original cause; `None` if no attempt led to this.
    pub failure: Option<Failure>,
}

impl fmt::Display for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, attempts) = (self.message.id(), self.meta.attempts);
        write!(f, "{}: {id} is dead ({}) after {attempts} attempts", self.pipeline, self.reason)?;
        match &self.failure {
            Some(failure) => write!(f, ": {}", failure.chain()),
            None => Ok(()),
        }
    }
}

pub(crate) type Hook = Arc<dyn Fn(&DeadLetter) + Send + Sync>;
pub(crate) type FailureHook = Arc<dyn Fn(&AttemptFailed) + Send + Sync>;
pub(crate) type HealthHook = Arc<dyn Fn(&HealthChanged) + Send + Sync>;
pub(crate) type StoreHook = Arc<dyn Fn(&StoreNotice) + Send + Sync>;

/// The hooks of a pipeline.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    pub(crate) dead: Option<Hook>,
    pub(crate) failed: Option<FailureHook>,
    pub(crate) health: Option<HealthHook>,
    pub(crate) store: Option<StoreHook>,
}

/// The argument of a hook.
#[derive(Debug)]
enum HookEvent {
    Parked(Parked),
    Failed(AttemptFailed),
    Health(HealthEntry),
    Store(StoreNotice),
}

/// The dispatch thread's end of the queue: passes on events as far as possible and keeps the rest.
#[derive(Debug)]
pub(crate) struct Hooks {
    sender: Option<mpsc::Sender<HookEvent>>,
    waiting: VecDeque<HookEvent>,
    wants_parked: bool,
    wants_health: bool,
    wants_store: bool,
}

impl Hooks {
    /// The dispatch thread's end of the queue, and the task that calls the hooks, if there are any.
    pub(crate) fn new(
        pipeline: &Arc<str>,
        listeners: Listeners,
        wake: &Arc<Wake>,
    ) -> (Self, Option<impl Future<Output = ()> + Send + 'static>) {
        let Listeners { dead, failed, health, store } = &listeners;
        let (wants_parked, wants_health, wants_store) = (dead.is_some(), health.is_some(), store.is_some());
        let hooks = Self { sender: None, waiting: VecDeque::new(), wants_parked, wants_health, wants_store };
        if dead.is_none() && failed.is_none() && health.is_none() && store.is_none() {
            return (hooks, None);
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let calling = call_all(Arc::clone(pipeline), listeners, receiver, Arc::clone(wake));
        (Self { sender: Some(sender), ..hooks }, Some(calling))
    }

    pub(crate) fn tell(&mut self, parked: &mut Vec<Parked>) {
        if self.wants_parked {
            self.waiting.extend(parked.drain(..).map(HookEvent::Parked));
        } else {
            parked.clear();
        }
    }

    pub(crate) fn tell_failed(&mut self, failed: &mut Vec<AttemptFailed>) {
        self.waiting.extend(failed.drain(..).map(HookEvent::Failed));
    }

    pub(crate) fn tell_health(&mut self, changes: &mut Vec<HealthEntry>) {
        if self.wants_health {
            self.waiting.extend(changes.drain(..).map(HookEvent::Health));
        } else {
            changes.clear();
        }
    }

    pub(crate) fn tell_store(&mut self, notices: &mut Vec<StoreNotice>) {
        if self.wants_store {
            self.waiting.extend(notices.drain(..).map(HookEvent::Store));
        } else {
            notices.clear();
        }
    }

    /// Passes on as many events as fit. Returns whether none is left.
    pub(crate) fn flush(&mut self) -> bool {
        let Some(sender) = &self.sender else { return true };
        while let Some(event) = self.waiting.pop_front() {
            match sender.try_send(event) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(event)) => {
                    self.waiting.push_front(event);
                    return false;
                }
                // The runtime is gone, and the hooks with it.
                Err(mpsc::error::TrySendError::Closed(_)) => self.waiting.clear(),
            }
        }
        true
    }
}

async fn call_all(
    pipeline: Arc<str>,
    listeners: Listeners,
    mut receiver: mpsc::Receiver<HookEvent>,
    wake: Arc<Wake>,
) {
    while let Some(event) = receiver.recv().await {
        // A panic in a hook is printed by the panic hook; the next event is still delivered.
        let _ = catch_unwind(AssertUnwindSafe(|| match event {
            HookEvent::Parked(Parked { number, message, reason, meta, first_crash, failure }) => {
                let pipeline = Arc::clone(&pipeline);
                let letter = DeadLetter { pipeline, number, message, reason, meta, first_crash, failure };
                listeners.dead.iter().for_each(|hook| hook(&letter));
            }
            HookEvent::Store(notice) => listeners.store.iter().for_each(|hook| hook(&notice)),
            HookEvent::Failed(failed) => listeners.failed.iter().for_each(|hook| hook(&failed)),
            HookEvent::Health(HealthEntry { at, change }) => {
                let changed = HealthChanged { pipeline: Arc::clone(&pipeline), at, change };
                listeners.health.iter().for_each(|hook| hook(&changed));
            }
        }));
        wake.call();
    }
}
