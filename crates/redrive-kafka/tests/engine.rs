//! The Kafka engine's promises one by one, on a real broker.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use redrive::engine::{Delivery, Engine, Settlement, StoreOptions, Verdict};
use redrive_core::{Meta, Reason, Time};
use redrive_kafka::KafkaEngine;

use support::{World, message, wait, wait_durable};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

fn at(ms: u64) -> Time {
    Time::from_millis(1_000_000 + ms)
}

/// Takes until `count` deliveries are there.
fn take(engine: &mut KafkaEngine, now: Time, count: usize) -> Vec<Delivery> {
    let mut out = Vec::new();
    let mut events = Vec::new();
    wait("deliveries come", || {
        engine.poll(&mut events).expect("polling works");
        let room = count - out.len();
        engine.take(now, room, &mut out).expect("taking works");
        out.len() == count
    });
    out
}

fn settle(engine: &mut KafkaEngine, deliveries: Vec<Delivery>, verdict: impl Fn(&Delivery) -> Verdict) {
    let batch = deliveries
        .into_iter()
        .map(|delivery| Settlement { verdict: verdict(&delivery), delivery, attempt: None })
        .collect();
    let ticket = engine.settle(batch).expect("settling works");
    wait_durable(engine, ticket);
}

fn ids(deliveries: &[Delivery]) -> BTreeSet<String> {
    deliveries.iter().map(|delivery| delivery.message.id().to_owned()).collect()
}

fn messages(ids: std::ops::Range<u32>) -> Vec<redrive_core::Message> {
    ids.map(|n| message(&format!("m{n}")).created(at(0)).payload("{}").build().unwrap()).collect()
}

#[test]
fn messages_go_through_tiers_and_letters_and_what_is_done_stays_done() {
    let world = World::new(2, &TIERS);
    world.produce(&messages(0..30));
    let mut engine = world.open(StoreOptions::default());
    let taken = take(&mut engine, at(0), 30);
    assert_eq!(ids(&taken).len(), 30);
    let number = |delivery: &Delivery| delivery.message.id()[1..].parse::<u32>().unwrap();
    settle(&mut engine, taken, |delivery| match number(delivery) {
        n if n < 10 => Verdict::Retry { due: at(500), meta: Meta { attempts: 1, ..delivery.meta } },
        n if n < 15 => Verdict::Dead { reason: Reason::Permanent, meta: delivery.meta, at: at(1) },
        _ => Verdict::Done,
    });
    assert_eq!(engine.counts().letters_open, 5);
    assert_eq!(engine.counts().pending(), 10);
    let mut early = Vec::new();
    engine.take(at(499), 100, &mut early).unwrap();
    assert!(early.is_empty(), "nothing is early");
    assert_eq!(engine.next_due(), Some(at(500)));
    engine.close().unwrap();
    drop(engine);

    let mut engine = world.open_caught_up(StoreOptions::default());
    let retried = take(&mut engine, at(500), 10);
    assert!(retried.iter().all(|delivery| delivery.meta.attempts == 1 && delivery.due == Some(at(500))));
    assert_eq!(engine.counts().pending(), 10);
    settle(&mut engine, retried, |_| Verdict::Done);
    engine.close().unwrap();
    drop(engine);

    let mut engine = world.open_caught_up(StoreOptions::default());
    assert_eq!(engine.counts().pending(), 0);
    assert_eq!(engine.counts().letters_open, 5);
    let mut out = Vec::new();
    engine.take(at(1_000_000), 100, &mut out).unwrap();
    assert!(out.is_empty(), "{:?}", ids(&out));
}

#[test]
fn what_was_not_settled_comes_again_after_a_crash_and_what_was_does_not() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..20));
    let mut engine = world.open(StoreOptions::default());
    let mut taken = take(&mut engine, at(0), 20);
    // Every second one is done, so that the offset alone says nothing of them.
    taken.retain(|delivery| delivery.receipt.at % 2 == 1);
    settle(&mut engine, taken, |_| Verdict::Done);
    drop(engine);

    let mut engine = world.open_caught_up(StoreOptions::default());
    let again = take(&mut engine, at(0), 10);
    assert!(again.iter().all(|delivery| delivery.receipt.at % 2 == 0));
    let mut more = Vec::new();
    engine.take(at(0), 10, &mut more).unwrap();
    assert!(more.is_empty());
}

#[test]
fn more_than_a_note_holds_is_kept_in_bitmaps() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..4_000));
    let mut engine = world.open(StoreOptions::default());
    let mut taken = take(&mut engine, at(0), 4_000);
    taken.retain(|delivery| delivery.receipt.at % 2 == 1);
    settle(&mut engine, taken, |_| Verdict::Done);
    drop(engine);

    let mut engine = world.open_caught_up(StoreOptions::default());
    assert_eq!(engine.counts().pending(), 2_000);
    let again = take(&mut engine, at(0), 2_000);
    assert!(again.iter().all(|delivery| delivery.receipt.at % 2 == 0));
    settle(&mut engine, again, |_| Verdict::Done);
    engine.close().unwrap();
}
