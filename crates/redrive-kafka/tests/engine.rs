//! The guarantees of the Kafka engine one by one, on a real broker.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use redrive::internal::engine::{Deliver, Delivery, Query, Settlement, StoreOptions, Verdict};
use redrive_core::{Meta, Reason};
use redrive_kafka::Only;

use support::drive::{at, finish_all, ids, messages, of_key, ordered, settle, take};
use support::{World, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

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
    // Every second message is done, so the committed offset alone does not tell which.
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

#[test]
fn a_member_that_joins_gets_partitions_once_what_is_in_flight_has_ended() {
    let mut world = World::new(4, &TIERS);
    world.produce(&messages(0..200));
    world.cluster.member = None;
    let mut first = world.open_caught_up(StoreOptions::default());
    let in_flight = take(&mut first, at(0), 40);
    let mut second = world.open(StoreOptions::default());
    let mut events = Vec::new();
    wait("partitions are wanted", || {
        second.poll(&mut events).unwrap();
        first.poll(&mut events).unwrap();
        let mut out = Vec::new();
        first.take(at(0), 1, &mut out).unwrap();
        let nothing = out.is_empty();
        let batch =
            out.into_iter().map(|delivery| Settlement { delivery, verdict: Verdict::Release, attempt: None });
        first.settle(batch.collect()).unwrap();
        nothing
    });
    let known = ids(&in_flight);
    let batch = in_flight
        .into_iter()
        .map(|delivery| Settlement { delivery, verdict: Verdict::Done, attempt: None })
        .collect();
    first.settle(batch).unwrap();
    let rest = finish_all(&mut [&mut first, &mut second], at(0), 160);
    let all: BTreeSet<String> = known.into_iter().chain(rest.iter().cloned()).collect();
    assert_eq!((rest.len(), all.len()), (160, 200), "nothing twice, nothing missing");
    first.close().unwrap();
    second.close().unwrap();
}

#[test]
fn in_blocking_mode_one_delivery_of_each_partition_is_in_flight() {
    let mut world = World::new(2, &TIERS);
    world.pipeline.blocking = true;
    world.produce(&messages(0..10));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let mut seen = 0;
    while seen < 10 {
        let mut out = Vec::new();
        wait("the next ones come", || {
            engine.poll(&mut Vec::new()).unwrap();
            engine.take(at(0), 10, &mut out).unwrap();
            out.len() == 2
        });
        assert_ne!(out[0].receipt.lane, out[1].receipt.lane);
        seen += out.len();
        settle(&mut engine, out, |_| Verdict::Done);
    }
    engine.close().unwrap();
}

#[test]
fn a_position_that_is_lost_stops_its_partition_and_nothing_else() {
    let world = World::new(2, &TIERS);
    world.produce(&messages(0..10));
    let mut engine = world.open_caught_up(StoreOptions::default());
    engine.close().unwrap();
    drop(engine);
    support::delete_records(&world.pipeline.source, 0, 3);
    let mut engine = world.open(StoreOptions::default());
    let taken = take(&mut engine, at(0), 5);
    assert!(taken.iter().all(|delivery| delivery.receipt.seq >> 48 == 1));
    let mut more = Vec::new();
    for _ in 0..300 {
        engine.poll(&mut Vec::new()).unwrap();
        engine.take(at(0), 10, &mut more).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(more.is_empty(), "{:?}", ids(&more));
}

#[test]
fn a_group_that_never_read_the_source_does_not_guess_where_to_begin() {
    let mut world = World::new(1, &TIERS);
    world.cluster.start = None;
    let error = world.stores().engine(&world.pipeline.name, StoreOptions::default()).unwrap_err();
    assert!(error.to_string().contains("start = \"earliest\""), "{error}");
}

#[test]
fn a_new_owner_knows_which_keys_wait_in_the_tiers() {
    let world = World::new(2, &TIERS);
    world.produce(&of_key(0..3, "a"));
    world.produce(&of_key(0..3, "b"));
    let mut engine = world.open(ordered());
    let first = take(&mut engine, at(0), 2);
    assert_eq!(ids(&first), ["a0".to_owned(), "b0".to_owned()].into());
    settle(&mut engine, first, |delivery| match delivery.message.id() {
        "a0" => Verdict::Retry { due: at(30_000), meta: Meta { attempts: 1, ..delivery.meta } },
        _ => Verdict::Done,
    });
    drop(engine);

    let mut engine = world.open(ordered());
    for expected in ["b1", "b2"] {
        let next = take(&mut engine, at(10), 1);
        assert_eq!(ids(&next), [expected.to_owned()].into());
        settle(&mut engine, next, |_| Verdict::Done);
    }
    let mut none = Vec::new();
    for _ in 0..100 {
        engine.poll(&mut Vec::new()).unwrap();
        engine.take(at(29_999), 10, &mut none).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(none.is_empty(), "{:?}", ids(&none));
    assert_eq!(engine.counts().pending(), 3);
    for expected in ["a0", "a1", "a2"] {
        let next = take(&mut engine, at(30_000), 1);
        assert_eq!(ids(&next), [expected.to_owned()].into());
        settle(&mut engine, next, |_| Verdict::Done);
    }
    engine.close().unwrap();
}

#[test]
fn tiers_grow_with_the_source() {
    let mut world = World::new(1, &TIERS);
    world.cluster.passed_on.push(("topic.metadata.refresh.interval.ms".to_owned(), "500".to_owned()));
    let mut engine = world.open_caught_up(StoreOptions::default());
    support::grow(&world.pipeline.source, 3);
    world.partitions = 3;
    world.produce(&messages(0..30));
    let mut taken = Vec::new();
    let mut partitions = BTreeSet::new();
    while partitions.len() < 3 {
        taken = take(&mut engine, at(0), 1);
        partitions.insert(taken[0].receipt.seq >> 48);
        settle(&mut engine, std::mem::take(&mut taken), |delivery| Verdict::Retry {
            due: at(10),
            meta: Meta { attempts: 1, ..delivery.meta },
        });
    }
    finish_all(&mut [&mut engine], at(10), 30);
    assert!(taken.is_empty());
    engine.close().unwrap();
}

#[test]
fn a_static_member_that_comes_back_finds_partitions_that_were_added() {
    let mut world = World::new(1, &TIERS);
    let mut engine = world.open_caught_up(StoreOptions::default());
    engine.close().unwrap();
    drop(engine);
    support::grow(&world.pipeline.source, 3);
    world.partitions = 3;
    world.produce(&messages(0..30));
    let mut engine = world.open(StoreOptions::default());
    let done: BTreeSet<String> = finish_all(&mut [&mut engine], at(0), 30).into_iter().collect();
    assert_eq!(done.len(), 30);
    engine.close().unwrap();
}

#[test]
fn a_process_may_have_the_source_alone_and_another_the_tiers() {
    let mut world = World::new(2, &TIERS);
    world.cluster.member = None;
    world.produce(&messages(0..10));
    world.pipeline.only = Only::Source;
    let mut source = world.open_caught_up(StoreOptions::default());
    let taken = take(&mut source, at(0), 10);
    settle(&mut source, taken, |delivery| Verdict::Retry {
        due: at(10),
        meta: Meta { attempts: 1, ..delivery.meta },
    });
    let mut none = Vec::new();
    source.take(at(100), 10, &mut none).unwrap();
    assert!(none.is_empty());
    world.pipeline.only = Only::Tiers;
    let mut tiers = world.open(StoreOptions::default());
    let mut events = Vec::new();
    let mut retried = Vec::new();
    wait("the tiers are read", || {
        source.poll(&mut events).unwrap();
        tiers.poll(&mut events).unwrap();
        tiers.take(at(100), 10 - retried.len(), &mut retried).unwrap();
        retried.len() == 10
    });
    settle(&mut tiers, retried, |_| Verdict::Done);
    tiers.close().unwrap();
    source.close().unwrap();
}
