//! Records that were put back onto the source by hand, for example with `kcat`, with the headers of a letter or a
//! retry: each is delivered, whenever it is read. Skipped records are counted.

mod support;

use std::time::Duration;

use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Header, Headers as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use redrive::internal::engine::{
    Deliver, Delivery, KeepLetters, LetterState, Query, ReplayJob, ReplayTarget, StoreOptions, Verdict,
};
use redrive_core::{Meta, Reason};
use redrive_kafka::KafkaEngine;
use redrive_kafka::topics::scan::Scan;
use support::drive::{at, ids, messages, settle, take};
use support::{LIMIT, World, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

fn dead(delivery: &Delivery) -> Verdict {
    let meta = Meta { attempts: 4, first_failed: Some(at(1)), ..delivery.meta };
    Verdict::Dead { reason: Reason::MaxRetries, meta, at: at(50) }
}

/// Copies the records of a topic onto the source, with key, value and headers.
fn put_back(world: &World, topic: &str) -> u64 {
    let producer: BaseProducer = support::client_at(&world.brokers).create().unwrap();
    let copy = |record: &BorrowedMessage<'_>| {
        let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
        let headers =
            headers.fold(OwnedHeaders::new(), |all, Header { key, value }| all.insert(Header { key, value }));
        let mut back = BaseRecord::<[u8], [u8]>::to(&world.pipeline.source)
            .partition(record.partition())
            .headers(headers);
        back.key = record.key();
        back.payload = record.payload();
        producer.send(back).map_err(|(error, _)| error).unwrap();
    };
    let scan = Scan::new(&world.cluster).unwrap();
    let copied = scan.read(&scan.spans(topic).unwrap(), |span| span.low, copy).unwrap();
    producer.flush(LIMIT).unwrap();
    copied
}

/// Returns a world with five letters, whose engine was closed or crashed.
fn with_letters(in_order: bool) -> World {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..5));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let taken = take(&mut engine, at(0), 5);
    settle(&mut engine, taken, dead);
    if in_order {
        engine.close().unwrap();
    }
    world
}

fn delivers_them_as_new(engine: &mut KafkaEngine) {
    let again = take(engine, at(100), 5);
    assert_eq!(ids(&again), (0..5).map(|n| format!("m{n}")).collect(), "with their ids");
    assert!(
        again.iter().all(|one| one.meta.attempts == 0 && one.due.is_none()),
        "their attempts begin again"
    );
    assert!(
        again.iter().all(|one| one.message.headers().count() == 1),
        "our headers tell of an earlier life"
    );
    // They may die again, and are new letters then.
    settle(engine, again, dead);
    assert_eq!(engine.counts().letters_open, 10);
    assert_eq!((engine.condition().passed_over, engine.condition().letter_twins), (0, 0));
}

#[test]
fn letters_put_back_by_hand_are_delivered_when_they_are_read_just_after_an_assignment() {
    for in_order in [true, false] {
        let world = with_letters(in_order);
        assert_eq!(put_back(&world, &format!("{}.DLQ", world.pipeline.name)), 5);
        let mut engine = world.open(StoreOptions::default());
        delivers_them_as_new(&mut engine);
        engine.close().unwrap();
    }
}

#[test]
fn letters_put_back_by_hand_are_delivered_while_the_processor_runs() {
    let world = with_letters(true);
    let mut engine = world.open_caught_up(StoreOptions::default());
    put_back(&world, &format!("{}.DLQ", world.pipeline.name));
    delivers_them_as_new(&mut engine);
    engine.close().unwrap();
}

#[test]
fn retries_put_back_by_hand_are_delivered_beside_those_that_wait() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..3));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let taken = take(&mut engine, at(0), 3);
    settle(&mut engine, taken, |one| Verdict::Retry { due: at(500), meta: Meta { attempts: 1, ..one.meta } });
    drop(engine);
    assert_eq!(put_back(&world, &format!("{}.retry.1s", world.pipeline.name)), 3);
    let mut engine = world.open(StoreOptions::default());
    let fresh = take(&mut engine, at(10), 3);
    assert!(fresh.iter().all(|one| one.meta.attempts == 0));
    settle(&mut engine, fresh, |_| Verdict::Done);
    let retried = take(&mut engine, at(500), 3);
    assert!(retried.iter().all(|one| one.meta.attempts == 1));
    settle(&mut engine, retried, |_| Verdict::Done);
    assert_eq!(engine.condition().passed_over, 0);
    engine.close().unwrap();
}

/// A replay onto the source is our own: after a crash, its record and its successor count as one message.
#[test]
fn a_replay_onto_the_source_that_died_again_is_not_delivered_a_second_time_after_a_crash() {
    let world = with_letters(true);
    let mut engine = world.open_caught_up(StoreOptions::default());
    let all: Vec<u64> = engine.letters(None, None, 10).unwrap().iter().map(|letter| letter.id).collect();
    let job = ReplayJob { id: 7, due: at(60), force: false, target: ReplayTarget::Source };
    engine.replay(&job, &all, at(60).into()).unwrap();
    // From here on nothing is committed, as if the process died at once.
    engine.commit_every(Duration::from_hours(1));
    let again = take(&mut engine, at(100), 5);
    assert!(again.iter().all(|one| one.meta.replays == 1));
    let batch = again.into_iter().map(|one| redrive::internal::engine::Settlement {
        verdict: dead(&one),
        delivery: one,
        attempt: None,
    });
    engine.settle(batch.collect()).unwrap();
    wait("they are letters again", || {
        engine.poll(&mut Vec::new()).unwrap();
        engine.counts().letters_open == 5
    });
    drop(engine);
    let mut engine = world.open_caught_up(StoreOptions::default());
    let mut out = Vec::new();
    engine.take(at(1_000), 10, &mut out).unwrap();
    assert!(out.is_empty(), "{:?}", ids(&out));
    assert_eq!(engine.condition().passed_over, 5, "and they are counted");
    assert_eq!(engine.letters(Some(LetterState::Open), None, 10).unwrap().len(), 5);
    engine.close().unwrap();
}

/// An operator moves the group back on purpose: old letters do not keep their records from being delivered.
#[test]
fn a_group_that_was_moved_back_delivers_everything_again_also_what_had_died() {
    let world = with_letters(true);
    support::commit_as(&world.cluster.group, &world.brokers, &world.pipeline.source, 0, 0);
    let mut engine = world.open(StoreOptions::default());
    let again = take(&mut engine, at(100), 5);
    settle(&mut engine, again, |one| Verdict::Retry { due: at(500), meta: Meta { attempts: 1, ..one.meta } });
    let retried = take(&mut engine, at(500), 5);
    assert_eq!(retried.len(), 5, "and what fails is retried");
    settle(&mut engine, retried, |_| Verdict::Done);
    engine.close().unwrap();
}
