//! Suspects that are announced together. A pause, a clean rebalance or a merely slow run raises no suspicion; a message
//! that kills the process is suspected in any case.

use std::time::Duration;

use redrive::internal::engine::{Announced, Deliver, Delivery, Receipt, StoreOptions, Verdict};
use redrive_kafka::KafkaEngine;

use super::support::drive::{at, messages, settle, take};
use super::support::{World, wait};
use super::{TIERS, announce, crashes, forget};

fn announce_all(engine: &mut KafkaEngine, next: &[Receipt]) {
    let mut events = Vec::new();
    wait("the announcement is committed", || {
        engine.poll(&mut events).expect("polling works");
        engine.announce(next, at(0)).unwrap() == Announced::Yes
    });
}

/// Does what the machine does in `pause` and `stop`: the suspects that wait for their turn are released, the running
/// one goes on. Then it kills the process.
fn released_beside_a_running_pill(keeps_disk: bool) {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..3));
    let mut engine = world.open(StoreOptions::default());
    take(&mut engine, at(0), 3);
    drop(engine);
    if !keeps_disk {
        forget(&world);
    }
    let mut engine = world.open(StoreOptions::default());
    let mut taken = take(&mut engine, at(0), 3);
    let group: Vec<Receipt> = taken.iter().map(|delivery| delivery.receipt).collect();
    announce_all(&mut engine, &group);
    let pill = taken.remove(0);
    settle(&mut engine, taken, |_| Verdict::Release);
    let mut events = Vec::new();
    for _ in 0..30 {
        engine.poll(&mut events).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(engine);
    if !keeps_disk {
        forget(&world);
    }
    let mut engine = world.open(StoreOptions::default());
    let of = crashes(&take(&mut engine, at(0), 3));
    assert_eq!(of[pill.message.id()], 2, "it ran alone, announced, and killed the process: {of:?}");
}

#[test]
fn a_pause_while_one_runs_takes_no_crash_from_it() {
    released_beside_a_running_pill(true);
}

#[test]
fn a_pause_while_one_runs_takes_no_crash_from_it_on_a_machine_without_its_disk() {
    released_beside_a_running_pill(false);
}

/// Polls both engines and takes until there are `count` deliveries.
fn take_from(engines: &mut [&mut KafkaEngine], count: usize) -> Vec<Delivery> {
    let (mut out, mut events) = (Vec::new(), Vec::new());
    wait("deliveries come after the rebalance", || {
        for engine in engines.iter_mut() {
            engine.poll(&mut events).unwrap();
            let room = count - out.len();
            if room > 0 {
                engine.take(at(0), room, &mut out).unwrap();
            }
        }
        out.len() == count
    });
    out
}

#[test]
fn a_rebalance_in_order_is_no_crash_of_those_that_were_announced_and_had_no_turn() {
    let mut world = World::new(1, &TIERS);
    world.produce(&messages(0..6));
    let mut engine = world.open(StoreOptions::default());
    take(&mut engine, at(0), 6);
    drop(engine);
    let mut first = world.open(StoreOptions::default());
    let mut taken = take(&mut first, at(0), 6);
    assert!(crashes(&taken).values().all(|crashes| *crashes == 1));
    let group: Vec<Receipt> = taken.iter().map(|delivery| delivery.receipt).collect();
    announce_all(&mut first, &group);
    // The first one runs and is done; then nothing runs. Another member joins.
    settle(&mut first, vec![taken.remove(0)], |_| Verdict::Done);
    let elsewhere = tempfile::tempdir().unwrap();
    world.cluster.member = Some("two".to_owned());
    world.cluster.state_dir = elsewhere.path().to_owned();
    let mut second = world.open(StoreOptions::default());
    let taken = take_from(&mut [&mut first, &mut second], 5);
    let of = crashes(&taken);
    assert!(of.values().all(|crashes| *crashes == 1), "one process died, once: {of:?}");
}

/// A suspect was announced and waits for the commit when partitions move in a clean rebalance.
#[test]
fn a_rebalance_in_order_quarantines_nothing() {
    let mut world = World::new(1, &TIERS);
    world.produce(&messages(0..2));
    let mut engine = world.open(StoreOptions::default());
    take(&mut engine, at(0), 2);
    drop(engine);
    let mut first = world.open(StoreOptions::default());
    let taken = take(&mut first, at(0), 2);
    announce(&mut first, &taken[0]);
    drop(first);
    let mut first = world.open(StoreOptions::default());
    let taken = take(&mut first, at(0), 2);
    let silent = taken.iter().find(|delivery| delivery.suspect.as_ref().unwrap().crashes == 2).unwrap();
    assert_eq!(first.announce(&[silent.receipt], at(0)).unwrap(), Announced::NotYet, "it does not run");
    let elsewhere = tempfile::tempdir().unwrap();
    world.cluster.member = Some("two".to_owned());
    world.cluster.state_dir = elsewhere.path().to_owned();
    let mut second = world.open(StoreOptions::default());
    let of = crashes(&take_from(&mut [&mut first, &mut second], 2));
    assert!(of.values().all(|crashes| *crashes < 3), "two processes died: {of:?}");
}

/// The exclusive run of a suspect takes longer than the drain. No process dies.
#[test]
fn a_slow_suspect_is_not_quarantined_by_a_rebalance() {
    let options = || StoreOptions { drain: Some(Duration::from_secs(1)), ..StoreOptions::default() };
    let mut world = World::new(1, &TIERS);
    world.produce(&messages(0..2));
    let mut engine = world.open(options());
    take(&mut engine, at(0), 2);
    drop(engine);
    let mut first = world.open(options());
    let taken = take(&mut first, at(0), 2);
    announce(&mut first, &taken[0]);
    drop(first);
    let mut first = world.open(options());
    let taken = take(&mut first, at(0), 2);
    let slow = taken.iter().find(|delivery| delivery.suspect.as_ref().unwrap().crashes == 2).unwrap();
    announce(&mut first, slow);
    let elsewhere = tempfile::tempdir().unwrap();
    world.cluster.member = Some("two".to_owned());
    world.cluster.state_dir = elsewhere.path().to_owned();
    let mut second = world.open(options());
    let of = crashes(&take_from(&mut [&mut first, &mut second], 2));
    assert!(of.values().all(|crashes| *crashes < 3), "two processes died, and this one lives: {of:?}");
}

/// A process that was frozen does not know whether the partitions are still its own.
#[test]
fn who_stood_still_starts_no_suspect_before_a_commit_is_taken() {
    let mut world = World::new(1, &TIERS);
    world.cluster.passed_on = vec![("session.timeout.ms".to_owned(), "6000".to_owned())];
    world.produce(&messages(0..20));
    let mut engine = world.open(StoreOptions::default());
    take(&mut engine, at(0), 3);
    drop(engine);
    let mut engine = world.open(StoreOptions::default());
    let taken = take(&mut engine, at(0), 3);
    let group: Vec<Receipt> = taken.iter().map(|delivery| delivery.receipt).collect();
    announce_all(&mut engine, &group);
    settle(&mut engine, vec![taken[0].clone()], |_| Verdict::Done);
    std::thread::sleep(Duration::from_millis(3_500));
    let (mut events, mut out) = (Vec::new(), Vec::new());
    engine.poll(&mut events).unwrap();
    engine.take(at(0), 10, &mut out).unwrap();
    assert!(out.is_empty(), "nothing is taken before a commit is answered");
    assert_eq!(engine.announce(&group[1..], at(0)).unwrap(), Announced::NotYet);
}
