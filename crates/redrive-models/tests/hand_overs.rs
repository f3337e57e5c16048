//! Orders of steps one after the other for a small case, and at random for a larger one.

use redrive_models::models;
use shuttle::{check_dfs, check_pct, check_random};

/// Orders of steps that are tried in turn; the deepest choices vary first.
const SOME: usize = 5_000;
const RANDOM: usize = 5_000;

#[test]
fn a_sleeper_misses_no_call() {
    check_dfs(|| models::no_call_is_missed(1), Some(SOME));
    check_random(|| models::no_call_is_missed(3), RANDOM);
}

#[test]
fn a_mailbox_loses_nothing_and_its_end_is_heard() {
    check_dfs(|| models::everything_posted_is_taken_once(1, 1), Some(SOME));
    check_random(|| models::everything_posted_is_taken_once(2, 3), RANDOM);
}

#[test]
fn nothing_runs_beside_a_suspect_that_needs_silence() {
    check_dfs(|| models::silence_is_silence(2), Some(SOME));
    check_random(|| models::silence_is_silence(3), RANDOM);
}

#[test]
fn suspects_take_turns() {
    check_dfs(models::one_suspect_at_a_time, Some(SOME));
}

#[test]
fn every_start_is_run_and_every_end_is_heard() {
    check_dfs(|| models::every_start_is_run_and_every_end_is_heard(1), Some(SOME));
    check_random(|| models::every_start_is_run_and_every_end_is_heard(4), RANDOM);
}

#[test]
fn ends_that_are_told_together_are_all_heard() {
    check_dfs(|| models::ends_that_are_told_together_are_all_heard(1), Some(SOME));
    check_random(|| models::ends_that_are_told_together_are_all_heard(3), RANDOM);
    // A thread that is held up in the middle of something while the others go on.
    check_pct(|| models::ends_that_are_told_together_are_all_heard(2), RANDOM, 3);
}
