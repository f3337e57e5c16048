//! Tries every order of steps for the smallest cases that finish within seconds ([`ALL`]), the first of them for the
//! others ([`SOME`]), and random orders for larger cases.

use redrive_models::models;
use shuttle::{check_dfs, check_pct, check_random};

/// Every order of steps, where that takes seconds.
const ALL: Option<usize> = None;
/// How many orders are tried in sequence otherwise; the deepest choices vary first.
const SOME: usize = 5_000;
const RANDOM: usize = 5_000;

#[test]
fn a_sleeper_misses_no_call() {
    check_dfs(|| models::no_call_is_missed(1), Some(SOME));
    check_random(|| models::no_call_is_missed(3), RANDOM);
}

#[test]
fn a_mailbox_loses_nothing_and_its_end_is_heard() {
    check_dfs(|| models::everything_posted_is_taken_once(1, 1), ALL);
    check_random(|| models::everything_posted_is_taken_once(2, 3), RANDOM);
}

#[test]
fn nothing_runs_beside_an_exclusive_run() {
    check_dfs(|| models::exclusive_means_exclusive(2), Some(SOME));
    check_random(|| models::exclusive_means_exclusive(3), RANDOM);
}

#[test]
fn suspects_take_turns() {
    check_dfs(models::one_suspect_at_a_time, ALL);
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
    // Cases in which a thread is held up in the middle of something while the others go on.
    check_pct(|| models::ends_that_are_told_together_are_all_heard(2), RANDOM, 3);
}

#[test]
fn the_polling_thread_takes_every_order_and_the_engine_hears_every_note() {
    check_dfs(|| models::every_order_is_taken_and_every_note_is_heard(1), Some(SOME));
    check_random(|| models::every_order_is_taken_and_every_note_is_heard(3), RANDOM);
    check_pct(|| models::every_order_is_taken_and_every_note_is_heard(2), RANDOM, 3);
}
