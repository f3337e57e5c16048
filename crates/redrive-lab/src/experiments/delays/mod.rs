//! What delays do: schedules, jitter, how late retries start, how long poison takes to become a letter.

pub(super) mod backoff_sweep;
pub(super) mod jitter_comparison;
pub(super) mod lateness;
pub(super) mod time_to_dead_letter;
