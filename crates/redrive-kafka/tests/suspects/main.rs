//! Which messages are suspected after a process died, on a real broker: those that may have run, in whatever topic, and
//! no others.

mod groups;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::internal::engine::{
    Announced, Deliver, Delivery, KeepLetters, Query, ReplayJob, ReplayTarget, StoreOptions, Verdict,
};
use redrive_core::{Meta, Reason};
use redrive_kafka::KafkaEngine;

use support::drive::{at, messages, settle, take};
use support::{World, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

/// Returns the crashes by message id; 0 if it is not suspected.
fn crashes(deliveries: &[Delivery]) -> BTreeMap<String, u32> {
    let crashes = |delivery: &Delivery| delivery.suspect.as_ref().map_or(0, |suspect| suspect.crashes);
    deliveries.iter().map(|delivery| (delivery.message.id().to_owned(), crashes(delivery))).collect()
}

fn announce(engine: &mut KafkaEngine, delivery: &Delivery) {
    let mut events = Vec::new();
    assert_eq!(
        engine.announce(&[delivery.receipt], at(0)).unwrap(),
        Announced::NotYet,
        "before it is committed"
    );
    wait("the announcement is committed", || {
        engine.poll(&mut events).expect("polling works");
        engine.announce(&[delivery.receipt], at(0)).unwrap() == Announced::Yes
    });
}

/// Simulates a machine that lost its disk.
fn forget(world: &World) {
    std::fs::remove_dir_all(&world.cluster.state_dir).unwrap();
    std::fs::create_dir_all(&world.cluster.state_dir).unwrap();
}

#[test]
fn exactly_what_ran_is_suspected_where_the_local_file_is_left() {
    let world = World::new(2, &TIERS);
    world.produce(&messages(0..30));
    let mut engine = world.open(StoreOptions::default());
    let mut taken = take(&mut engine, at(0), 20);
    let done = taken.split_off(12);
    settle(&mut engine, done, |_| Verdict::Done);
    let running = crashes(&taken);
    assert!(running.values().all(|crashes| *crashes == 0));
    drop(engine);

    let mut engine = world.open(StoreOptions::default());
    let again = crashes(&take(&mut engine, at(0), 22));
    let suspects: Vec<&String> = again.iter().filter(|(_, n)| **n == 1).map(|(id, _)| id).collect();
    assert_eq!(suspects, running.keys().collect::<Vec<_>>());
}

#[test]
fn without_its_disk_a_machine_suspects_all_that_may_have_run_and_counts_on() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..10));
    let mut engine = world.open(StoreOptions::default());
    take(&mut engine, at(0), 10);
    drop(engine);
    for expected in 1..=3 {
        forget(&world);
        let mut engine = world.open(StoreOptions::default());
        let taken = take(&mut engine, at(0), 10);
        let of = crashes(&taken);
        assert_eq!(of["m4"], expected, "{of:?}");
        assert!(of.iter().all(|(id, crashes)| id == "m4" || *crashes == 1), "{of:?}");
        let pill = taken.iter().find(|delivery| delivery.message.id() == "m4").unwrap();
        announce(&mut engine, pill);
        drop(engine);
    }
}

#[test]
fn one_that_ran_alone_and_came_to_an_end_is_cleared() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..3));
    let mut engine = world.open(StoreOptions::default());
    take(&mut engine, at(0), 3);
    drop(engine);
    let mut engine = world.open(StoreOptions::default());
    let mut taken = take(&mut engine, at(0), 3);
    announce(&mut engine, &taken[0]);
    settle(&mut engine, vec![taken.remove(0)], |_| Verdict::Release);
    // A message that is done is durable once that is committed, and so is that the other one was given up.
    announce(&mut engine, &taken[0]);
    settle(&mut engine, vec![taken.remove(0)], |_| Verdict::Done);
    drop(engine);
    let mut engine = world.open(StoreOptions::default());
    let left = crashes(&take(&mut engine, at(0), 2));
    assert!(
        left.values().all(|crashes| *crashes == 1),
        "one that was given up in order has no crash more: {left:?}"
    );
}

#[test]
fn retries_and_letters_that_were_put_back_are_suspected_too_but_not_what_waits() {
    for keeps_disk in [true, false] {
        let world = World::new(1, &TIERS);
        world.produce(&messages(0..4));
        let mut engine = world.open(StoreOptions::default());
        let taken = take(&mut engine, at(0), 4);
        settle(&mut engine, taken, |delivery| match delivery.message.id() {
            "m0" => Verdict::Retry { due: at(500), meta: Meta { attempts: 1, ..delivery.meta } },
            "m1" => Verdict::Retry { due: at(50_000), meta: Meta { attempts: 1, ..delivery.meta } },
            "m2" => Verdict::Dead { reason: Reason::Permanent, meta: delivery.meta, at: at(1) },
            _ => Verdict::Done,
        });
        let letter = engine.letters(None, None, 10).unwrap().remove(0);
        let job = ReplayJob { id: 7, due: at(400), force: false, target: ReplayTarget::Pipeline };
        engine.replay(&job, &[letter.id], at(2).into()).unwrap();
        let running = take(&mut engine, at(600), 2);
        assert_eq!(crashes(&running), BTreeMap::from([("m0".to_owned(), 0), ("m2".to_owned(), 0)]));
        drop(engine);
        if !keeps_disk {
            forget(&world);
        }
        let mut engine = world.open(StoreOptions::default());
        let again = take(&mut engine, at(60_000), 3);
        let expected = [("m0", 1), ("m1", 0), ("m2", 1)].map(|(id, crashes)| (id.to_owned(), crashes));
        assert_eq!(crashes(&again), BTreeMap::from(expected), "disk kept: {keeps_disk}");
    }
}

#[test]
fn a_clean_end_leaves_no_suspects_but_forgets_none_that_had_no_turn() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..6));
    let mut engine = world.open(StoreOptions::default());
    let taken = take(&mut engine, at(0), 3);
    settle(&mut engine, taken, |_| Verdict::Release);
    engine.close().unwrap();
    drop(engine);
    forget(&world);
    let mut engine = world.open(StoreOptions::default());
    let taken = take(&mut engine, at(0), 6);
    assert!(taken.iter().all(|delivery| delivery.suspect.is_none()));
    drop(engine);

    for _ in 0..2 {
        forget(&world);
        let mut engine = world.open(StoreOptions::default());
        let taken = take(&mut engine, at(0), 6);
        assert!(crashes(&taken).values().all(|crashes| *crashes == 1), "they had no turn");
        settle(&mut engine, taken, |_| Verdict::Release);
        engine.close().unwrap();
    }
}
