//! Poison pills found since the last poll.

use std::sync::{Mutex, PoisonError};

use redrive::{DeadLetter, Time};
use redrive_server::alerts::Pill;

/// The maximum number of pills waiting to be reported. Further ones are not reported individually; each is a dead
/// letter all the same.
const WAITING_MAX: usize = 256;

/// Filled by the pipelines' hooks, emptied once a second.
#[derive(Debug, Default)]
pub struct Pills {
    waiting: Mutex<Vec<(String, Pill)>>,
}

impl Pills {
    /// Records the letter if it is a pill. Must be fast: it is called for every dead letter.
    pub fn notice(&self, letter: &DeadLetter, now: Time) {
        let Some(pill) = Pill::of(letter, now) else { return };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.push((letter.pipeline.to_string(), pill));
        }
    }

    /// The pills found since the last call, each with its pipeline.
    pub fn take(&self) -> Vec<(String, Pill)> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
