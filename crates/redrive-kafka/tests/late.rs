//! Late copies: written for an assignment that is over, by a producer that lost its broker or a process that was
//! frozen. Whatever the order, exactly one of the two records of a message goes on.

mod support;

use std::time::Duration;

use redrive::internal::engine::{Deliver, Delivery, History, Query, StoreOptions, Verdict};
use redrive_core::{Meta, Reason};
use redrive_kafka::KafkaEngine;
use redrive_kafka::record::{CopyRecord, LetterMarks, Origin};
use redrive_kafka::topics::scan::Scan;
use support::drive::{at, messages, of_key, ordered, settle, take};
use support::{World, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

/// Writes the copy of a delivery as another process would, and waits until it is in the topic.
fn copy_late(world: &World, delivery: &Delivery, topic: &str, from: &str, dead: bool) {
    let copy = CopyRecord {
        message: delivery.message.clone(),
        meta: Meta { attempts: delivery.meta.attempts + 1, ..delivery.meta },
        history: History::default(),
        origin: Origin::of_number(world.pipeline.source.as_str().into(), delivery.receipt.seq),
        due: (!dead).then_some(at(100)),
        reason: dead.then_some(Reason::MaxRetries),
        dead_at: dead.then_some(at(50)),
        job: None,
        marks: LetterMarks::default(),
    };
    support::write_copies(topic, from, std::slice::from_ref(&copy));
}

fn from(delivery: &Delivery, topic: &str) -> String {
    format!("{topic}/{}/{}", delivery.receipt.seq >> 48, delivery.receipt.at)
}

fn tier(world: &World) -> String {
    format!("{}.retry.1s", world.pipeline.name)
}

/// Polls until the first tier is read up to `offset`.
fn wait_read(engine: &mut KafkaEngine, world: &World, offset: u64) {
    wait("the copy is read", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        engine.read_up_to(&tier(world), 0) >= Some(offset)
    });
}

/// Settles everything that remains as done, and returns the ids with their attempts.
fn rest(engine: &mut KafkaEngine) -> Vec<(String, u32)> {
    let mut rest = Vec::new();
    wait("nothing is left", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        let mut out = Vec::new();
        engine.take(at(1_000_000), 16, &mut out).expect("taking works");
        rest.extend(out.iter().map(|one| (one.message.id().to_owned(), one.meta.attempts)));
        settle(engine, out, |_| Verdict::Done);
        engine.counts().pending() == 0
    });
    rest
}

fn records_in(world: &World, topic: &str) -> u64 {
    let scan = Scan::new(&world.cluster).unwrap();
    let spans = scan.spans(topic).unwrap();
    scan.read(&spans, |span| span.low, |_| {}).unwrap()
}

/// Returns an engine that has read `m0` of partition 0 and not started it, and `m0` as it was handed out.
fn waiting_message(world: &World, options: StoreOptions) -> (KafkaEngine, Delivery) {
    let mut engine = world.open_caught_up(options);
    let delivery = take(&mut engine, at(0), 1).remove(0);
    settle(&mut engine, vec![delivery.clone()], |_| Verdict::Release);
    (engine, delivery)
}

#[test]
fn a_late_copy_takes_the_place_of_a_record_that_has_not_started() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..1));
    let (mut engine, delivery) = waiting_message(&world, StoreOptions::default());
    copy_late(&world, &delivery, &tier(&world), &from(&delivery, &world.pipeline.source), false);
    wait_read(&mut engine, &world, 1);
    assert_eq!(rest(&mut engine), [("m0".to_owned(), 1)]);
    engine.close().unwrap();
}

#[test]
fn a_record_that_runs_goes_on_and_its_late_copy_does_not_count() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..1));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let running = take(&mut engine, at(0), 1);
    copy_late(&world, &running[0], &tier(&world), &from(&running[0], &world.pipeline.source), false);
    wait_read(&mut engine, &world, 1);
    // A second copy, from a producer that sent it twice.
    copy_late(&world, &running[0], &tier(&world), &from(&running[0], &world.pipeline.source), false);
    settle(&mut engine, running, |delivery| Verdict::Retry {
        due: at(200),
        meta: Meta { attempts: 1, ..delivery.meta },
    });
    wait_read(&mut engine, &world, 3);
    assert_eq!(rest(&mut engine), [("m0".to_owned(), 1)], "its own copy goes on, alone");
    engine.close().unwrap();
}

#[test]
fn a_late_copy_in_a_tier_counts_for_its_record_in_another() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..1));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let first = take(&mut engine, at(0), 1);
    settle(&mut engine, first, |delivery| Verdict::Retry {
        due: at(90),
        meta: Meta { attempts: 1, ..delivery.meta },
    });
    let second = take(&mut engine, at(90), 1).remove(0);
    settle(&mut engine, vec![second.clone()], |_| Verdict::Release);
    let later = format!("{}.retry.1m", world.pipeline.name);
    copy_late(&world, &second, &later, &from(&second, &tier(&world)), false);
    wait("the copy is read", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        engine.read_up_to(&later, 0) == Some(1)
    });
    assert_eq!(rest(&mut engine), [("m0".to_owned(), 2)]);
    engine.close().unwrap();
}

/// The opposite case: the record was done before, so the copy is all there is and must not be skipped.
#[test]
fn the_copy_of_a_record_that_was_done_with_before_is_the_message() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..1));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let done = take(&mut engine, at(0), 1);
    let known = done[0].clone();
    settle(&mut engine, done, |_| Verdict::Done);
    engine.close().unwrap();
    drop(engine);
    let mut engine = world.open_caught_up(StoreOptions::default());
    take_nothing(&mut engine);
    copy_late(&world, &known, &tier(&world), &from(&known, &world.pipeline.source), false);
    wait_read(&mut engine, &world, 1);
    assert_eq!(rest(&mut engine), [("m0".to_owned(), 1)]);
    engine.close().unwrap();
}

fn take_nothing(engine: &mut KafkaEngine) {
    let mut out = Vec::new();
    engine.take(at(0), 1, &mut out).unwrap();
    assert!(out.is_empty());
}

#[test]
fn a_message_whose_letter_came_late_gets_no_second_one() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..2));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let running = take(&mut engine, at(0), 2);
    let letters = format!("{}.DLQ", world.pipeline.name);
    for delivery in &running {
        copy_late(&world, delivery, &letters, &from(delivery, &world.pipeline.source), true);
    }
    wait("the letters are known", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        engine.counts().letters_open == 2
    });
    settle(&mut engine, running, |delivery| match delivery.message.id() {
        "m0" => Verdict::Dead { reason: Reason::MaxRetries, meta: delivery.meta, at: at(60) },
        _ => Verdict::Retry { due: at(100), meta: Meta { attempts: 1, ..delivery.meta } },
    });
    assert_eq!(rest(&mut engine), []);
    assert_eq!(records_in(&world, &letters), 2);
    engine.close().unwrap();
}

#[test]
fn a_key_stays_in_order_when_a_late_copy_takes_a_place_in_its_line() {
    let world = World::new(1, &TIERS);
    world.produce(&of_key(0..3, "a"));
    let (mut engine, first) = waiting_message(&world, ordered());
    copy_late(&world, &first, &tier(&world), &from(&first, &world.pipeline.source), false);
    wait_read(&mut engine, &world, 1);
    let mut early = Vec::new();
    engine.take(at(99), 10, &mut early).unwrap();
    assert!(early.is_empty(), "the first of the key waits in a tier now: {early:?}");
    for expected in [("a0", 1), ("a1", 0), ("a2", 0)] {
        let next = take(&mut engine, at(100), 1);
        assert_eq!((next[0].message.id(), next[0].meta.attempts), expected);
        settle(&mut engine, next, |_| Verdict::Done);
    }
    assert_eq!(engine.counts().pending(), 0);
    engine.close().unwrap();
}

/// A process that was frozen does not know whether its partitions are still its own. A batch settled then is durable
/// only once that is known and the batch is written.
#[test]
fn what_is_settled_after_a_long_pause_is_durable_when_it_says_so() {
    let mut world = World::new(1, &TIERS);
    world.cluster.passed_on.push(("session.timeout.ms".to_owned(), "6000".to_owned()));
    world.produce(&messages(0..1));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let running = take(&mut engine, at(0), 1);
    std::thread::sleep(Duration::from_millis(3_500));
    settle(&mut engine, running, |delivery| Verdict::Retry {
        due: at(100),
        meta: Meta { attempts: 1, ..delivery.meta },
    });
    drop(engine);
    let mut engine = world.open_caught_up(StoreOptions::default());
    assert_eq!(rest(&mut engine), [("m0".to_owned(), 1)]);
    engine.close().unwrap();
}
