//! Tests hand-overs between threads step by step; `redrive-models` explores the interleavings.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redrive_core::suspects::Run;

use super::exchange::Exchange;
use super::exclusive::ExclusiveRuns;
use super::wake::Wake;
use super::yielding::let_others_run;
use crate::dispatch::{CallId, Ended};

const HANG_GUARD: Duration = Duration::from_mins(5);

#[test]
fn a_call_before_the_sleep_is_not_missed() {
    let wake = Wake::default();
    wake.call();
    assert!(wake.sleep(HANG_GUARD));
    assert!(!wake.sleep(Duration::from_millis(1)), "one call ends one sleep");
}

#[test]
fn a_call_from_another_thread_ends_the_sleep() {
    let wake = Arc::new(Wake::default());
    let waker = Arc::clone(&wake);
    let began = Instant::now();
    let caller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        waker.call();
    });
    wake.sleep(HANG_GUARD);
    caller.join().unwrap();
    assert!(began.elapsed() < HANG_GUARD);
}

#[test]
fn one_pipeline_has_its_turn_at_a_time() {
    let turns = ExclusiveRuns::of(2);
    assert!(turns[0].ask(Run::Alone) && !turns[1].ask(Run::Alone));
    assert!(turns[1].enter(), "other work goes on");
    turns[0].leave();
    assert!(turns[1].ask(Run::Alone));
}

#[test]
fn an_exclusive_run_waits_for_all_and_keeps_all_from_starting() {
    let turns = ExclusiveRuns::of(2);
    assert!(turns[1].enter());
    assert!(!turns[0].ask(Run::Exclusive), "the other one runs something");
    assert!(!turns[1].enter());
    turns[1].busy(false);
    assert!(turns[0].ask(Run::Exclusive));
    assert!(!turns[1].enter());
    turns[1].leave();
    assert!(!turns[1].enter(), "only the holder ends it");
    turns[0].leave();
    assert!(turns[1].enter());
}

#[tokio::test]
async fn calls_that_end_in_one_go_are_told_once_and_none_is_missed() {
    let wake = Arc::new(Wake::default());
    let exchange = Arc::new(Exchange::new(8, Arc::clone(&wake)));
    let telling = Arc::clone(&exchange);
    let _telling = tokio::spawn(async move { telling.tell_ends().await });
    let_others_run().await;
    for round in 0..3 {
        let ending = (0..100).map(|_| {
            let exchange = Arc::clone(&exchange);
            tokio::spawn(async move { exchange.end_soon(CallId::of_slot(0), Ended::Done) })
        });
        for ending in ending.collect::<Vec<_>>() {
            ending.await.unwrap();
        }
        while !wake.sleep(Duration::from_millis(1)) {
            let_others_run().await;
        }
        let heard = std::iter::from_fn(|| exchange.next_end()).count();
        assert_eq!(heard, 100, "round {round}");
        let_others_run().await;
        assert!(!wake.sleep(Duration::from_millis(1)), "it was called again for nothing, round {round}");
    }
}
