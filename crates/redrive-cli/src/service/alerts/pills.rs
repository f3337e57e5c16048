//! Poison pills between the moment they are found and the next look.

use std::sync::{Mutex, PoisonError};

use redrive::{DeadLetter, Time};
use redrive_server::alerts::Pill;

/// Pills waiting to be reported. Beyond it they are not reported one by one; each is a dead letter all the same.
const WAITING_MAX: usize = 256;

/// Filled by the pipelines' hooks, emptied once a second.
#[derive(Debug, Default)]
pub struct Pills {
    waiting: Mutex<Vec<(String, Pill)>>,
}

impl Pills {
    /// Remembers the letter if it is a pill. Quick: it is called for every dead letter.
    pub fn notice(&self, letter: &DeadLetter, now: Time) {
        let Some(pill) = Pill::of(letter, now) else { return };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.push((letter.pipeline.to_string(), pill));
        }
    }

    /// What was found since the last call, with the pipeline it is of.
    pub fn take(&self) -> Vec<(String, Pill)> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
