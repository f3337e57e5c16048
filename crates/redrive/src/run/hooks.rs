//! Tells the user's code about dead letters, on the caller's runtime: a slow hook holds back new work, never settling.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redrive_core::{Message, Meta, Reason};
use tokio::sync::mpsc;

use super::wake::Wake;
use crate::dispatch::Parked;
use crate::failure::Failure;

/// Dead letters that wait for the hook; beyond it nothing new is taken.
const WAITING_MAX: usize = 1024;

/// A message that has just become a dead letter. It is stored already.
#[derive(Debug)]
pub struct DeadLetter {
    pub pipeline: Arc<str>,
    pub message: Message,
    pub reason: Reason,
    pub meta: Meta,
    /// What the handler returned last, with its cause as its own type; `None` if no attempt led to this.
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

/// The dispatch thread's end: hands over what it can and keeps the rest.
#[derive(Debug)]
pub(crate) struct Hooks {
    sender: Option<mpsc::Sender<Parked>>,
    waiting: VecDeque<Parked>,
}

impl Hooks {
    /// The dispatch thread's end, and the task that calls the hook if there is one.
    pub(crate) fn new(
        pipeline: &Arc<str>,
        hook: Option<Hook>,
        wake: &Arc<Wake>,
    ) -> (Self, Option<impl Future<Output = ()> + Send + 'static>) {
        let waiting = VecDeque::new();
        let Some(hook) = hook else { return (Self { sender: None, waiting }, None) };
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let calling = call_all(Arc::clone(pipeline), hook, receiver, Arc::clone(wake));
        (Self { sender: Some(sender), waiting }, Some(calling))
    }

    pub(crate) fn tell(&mut self, parked: &mut Vec<Parked>) {
        match self.sender {
            Some(_) => self.waiting.extend(parked.drain(..)),
            None => parked.clear(),
        }
    }

    /// Hands over what fits. Whether all of it did.
    pub(crate) fn flush(&mut self) -> bool {
        let Some(sender) = &self.sender else { return true };
        while let Some(parked) = self.waiting.pop_front() {
            match sender.try_send(parked) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(parked)) => {
                    self.waiting.push_front(parked);
                    return false;
                }
                // The runtime is gone and the hook with it.
                Err(mpsc::error::TrySendError::Closed(_)) => self.waiting.clear(),
            }
        }
        true
    }
}

async fn call_all(pipeline: Arc<str>, hook: Hook, mut receiver: mpsc::Receiver<Parked>, wake: Arc<Wake>) {
    while let Some(Parked { message, reason, meta, failure }) = receiver.recv().await {
        let event = DeadLetter { pipeline: Arc::clone(&pipeline), message, reason, meta, failure };
        // A panic in a hook is printed by the panic hook; the next letter is told all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| hook(&event)));
        wake.call();
    }
}
