//! Delays: schedules, jitter, lateness of retries, time until poison becomes a letter.

pub(super) mod backoff_sweep;
pub(super) mod jitter_comparison;
pub(super) mod lateness;
pub(super) mod time_to_dead_letter;
