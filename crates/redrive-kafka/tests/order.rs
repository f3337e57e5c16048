//! Key order in hard cases: backlogs longer than the look-ahead, partitions that are revoked while a key runs, and
//! letters that other processes replay.

mod support;

use std::time::Duration;

use redrive::internal::engine::{
    AfterDead, Deliver, Delivery, ForeignLetter, History, KeepLetters, LetterChange, Query, ReplayAnswer,
    ReplayJob, ReplayTarget, Settlement, StoreOptions, Verdict,
};
use redrive_core::{Meta, Reason};
use redrive_kafka::KafkaEngine;
use redrive_kafka::record::{CopyRecord, LetterMarks, Origin};
use redrive_kafka::topics::Topics;
use support::drive::{at, ids, of_key, ordered, settle, take};
use support::{World, message, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

/// Ten tiers with four partitions divide the look-ahead so far that about twenty thousand records fill one share.
const MANY: [Duration; 10] = {
    let mut tiers = [Duration::ZERO; 10];
    let mut at = 0;
    while at < 10 {
        tiers[at] = Duration::from_secs(100 + at as u64);
        at += 1;
    }
    tiers
};
const LOOK_AHEAD: u64 = 1_000_000 / 44;

/// Returns copies of old messages that are due far in the future, each with a key of its own.
fn backlog(world: &World, count: u64) -> Vec<CopyRecord> {
    let copy = |n: u64| CopyRecord {
        message: message(&format!("old{n}")).key(format!("k{n}")).created(at(0)).build().unwrap(),
        meta: Meta { created: at(0), attempts: 1, ..Meta::default() },
        history: History::default(),
        origin: Origin {
            topic: world.pipeline.source.as_str().into(),
            partition: 1,
            offset: 1_000_000 + n.cast_signed(),
        },
        due: Some(at(900_000)),
        reason: None,
        dead_at: None,
        job: None,
        marks: LetterMarks::default(),
    };
    (0..count).map(copy).collect()
}

#[test]
fn a_backlog_longer_than_the_look_ahead_holds_its_partition_back_only_until_it_is_read() {
    let world = World::new(4, &MANY);
    let first_tier = Topics::of(&world.pipeline).tiers[0].1.clone();
    // Keys of one byte go to the partition of their byte: 'a' is 97, 'e' is 101, so both go to partition 1.
    world.produce(&of_key(0..2, "a"));
    world.produce(&of_key(0..2, "e"));
    let mut engine = world.open_caught_up(ordered());
    let running = take(&mut engine, at(0), 2);
    assert_eq!(ids(&running), ["a0".to_owned(), "e0".to_owned()].into());
    support::write_copies(&first_tier, "", &backlog(&world, LOOK_AHEAD + 1_000));
    // The retry of `a0` is behind all of them.
    settle(&mut engine, running, |delivery| match delivery.message.id() {
        "a0" => Verdict::Retry { due: at(100_000), meta: Meta { attempts: 1, ..delivery.meta } },
        _ => Verdict::Done,
    });
    drop(engine);

    let mut engine = world.open(ordered());
    let next = take(&mut engine, at(10), 1);
    assert_eq!(ids(&next), ["e1".to_owned()].into(), "the partition goes on, and `a1` does not overtake");
    settle(&mut engine, next, |_| Verdict::Done);
    let mut early = Vec::new();
    engine.take(at(99_999), 10, &mut early).unwrap();
    assert!(early.is_empty(), "{:?}", ids(&early));
    for expected in ["a0", "a1"] {
        let next = take(&mut engine, at(100_000), 1);
        assert_eq!(ids(&next), [expected.to_owned()].into());
        settle(&mut engine, next, |_| Verdict::Done);
    }
    engine.close().unwrap();
}

#[test]
fn what_does_not_end_within_the_drain_is_delivered_again_and_its_key_counts_as_voided() {
    let mut world = World::new(2, &TIERS);
    world.cluster.member = None;
    world.produce(&of_key(0..2, "a"));
    let options = StoreOptions { drain: Some(Duration::from_secs(1)), ..ordered() };
    let mut first = world.open_caught_up(options.clone());
    let running = take(&mut first, at(0), 1);
    assert_eq!(first.counts().key_order_voided, 0);
    let mut second = world.open(options);
    let mut again: Vec<Delivery> = Vec::new();
    wait("the partitions go although a delivery runs", || {
        for engine in [&mut first, &mut second] {
            engine.poll(&mut Vec::new()).unwrap();
            engine.take(at(0), 1 - again.len(), &mut again).unwrap();
        }
        again.len() == 1
    });
    assert_eq!(again[0].message.id(), "a0", "the next owner begins where the first did not end");
    assert_eq!(first.counts().key_order_voided, 1);
    // Its late result settles nothing, and above all loses nothing.
    let late =
        running.into_iter().map(|delivery| Settlement { delivery, verdict: Verdict::Done, attempt: None });
    first.settle(late.collect()).unwrap();
    let mut ends = vec![again.remove(0)];
    let mut seen = Vec::new();
    wait("both come to their end", || {
        for engine in [&mut first, &mut second] {
            engine.poll(&mut Vec::new()).unwrap();
            let (mine, others): (Vec<_>, Vec<_>) =
                std::mem::take(&mut ends).into_iter().partition(|one: &Delivery| engine.owns(one));
            ends = others;
            seen.extend(mine.iter().map(|one| one.message.id().to_owned()));
            let done = mine.into_iter().map(|delivery| Settlement {
                delivery,
                verdict: Verdict::Done,
                attempt: None,
            });
            engine.settle(done.collect()).unwrap();
            engine.take(at(0), 1, &mut ends).unwrap();
        }
        seen.len() == 2
    });
    assert_eq!(seen, ["a0", "a1"]);
    first.close().unwrap();
    second.close().unwrap();
}

fn blocking_keys() -> StoreOptions {
    StoreOptions { after_dead: AfterDead::BlockKey, ..ordered() }
}

fn dead(delivery: &Delivery) -> Verdict {
    Verdict::Dead { reason: Reason::Permanent, meta: delivery.meta, at: at(1) }
}

/// Returns an engine that owns the only partition, and one that owns nothing; the first message of key `a` is a letter.
fn owner_and_other(world: &mut World) -> (KafkaEngine, KafkaEngine, u64) {
    world.produce(&of_key(0..2, "a"));
    let mut owner = world.open_caught_up(blocking_keys());
    let first = take(&mut owner, at(0), 1);
    let letter = first[0].receipt.seq;
    settle(&mut owner, first, dead);
    // Another group: it mirrors the same letters and does none of the work.
    world.cluster.group.push_str("-other");
    support::commit_as(&world.cluster.group, &world.brokers, &world.pipeline.source, 0, 0);
    let mut other = world.open_caught_up(blocking_keys());
    wait("the other knows the letter", || {
        other.poll(&mut Vec::new()).unwrap();
        other.counts().letters_open == 1
    });
    (owner, other, letter)
}

#[test]
fn a_key_goes_on_when_another_process_has_discarded_its_letter() {
    let mut world = World::new(1, &TIERS);
    let (mut owner, mut other, letter) = owner_and_other(&mut world);
    assert_eq!(other.change_letters(&LetterChange::Discard, &[letter], at(2).into()).unwrap(), [true]);
    wait("the owner hears of it", || {
        owner.poll(&mut Vec::new()).unwrap();
        owner.counts().letters_open == 0
    });
    let next = take(&mut owner, at(3), 1);
    assert_eq!((next[0].message.id(), next[0].doomed), ("a1", None));
    settle(&mut owner, next, |_| Verdict::Release);
    assert_eq!(other.change_letters(&LetterChange::Undo, &[letter], at(4).into()).unwrap(), [true]);
    wait("the owner hears of that too", || {
        owner.poll(&mut Vec::new()).unwrap();
        owner.counts().letters_open == 1
    });
    let next = take(&mut owner, at(5), 1);
    assert_eq!((next[0].message.id(), next[0].doomed), ("a1", Some(Reason::KeyBlocked)));
    owner.close().unwrap();
    other.close().unwrap();
}

#[test]
fn a_letter_that_another_process_put_back_goes_before_those_behind_it() {
    let mut world = World::new(1, &TIERS);
    let (mut owner, mut other, letter) = owner_and_other(&mut world);
    let job = ReplayJob { id: 1, due: at(2), force: false, target: ReplayTarget::Pipeline };
    assert_eq!(other.replay(&job, &[letter], at(2).into()).unwrap(), [ReplayAnswer::Replayed]);
    wait("the owner hears of it", || {
        owner.poll(&mut Vec::new()).unwrap();
        owner.counts().letters_open == 0
    });
    for expected in ["a0", "a1"] {
        let next = take(&mut owner, at(3), 1);
        assert_eq!((next[0].message.id(), next[0].doomed), (expected, None));
        settle(&mut owner, next, |_| Verdict::Done);
    }
    owner.close().unwrap();
    other.close().unwrap();
}

#[test]
fn a_new_owner_knows_the_letters_that_block_keys() {
    let mut world = World::new(1, &TIERS);
    world.cluster.member = None;
    world.produce(&of_key(0..2, "a"));
    let mut first = world.open_caught_up(blocking_keys());
    let mut second = world.open(blocking_keys());
    // The owner of the partition creates the letter; the other engine is open already and takes over.
    let mut taken = Vec::new();
    wait("somebody has the partition", || {
        for engine in [&mut first, &mut second] {
            engine.poll(&mut Vec::new()).unwrap();
            engine.take(at(0), 1 - taken.len(), &mut taken).unwrap();
        }
        taken.len() == 1
    });
    let (mut owner, mut other) = if first.owns(&taken[0]) { (first, second) } else { (second, first) };
    settle(&mut owner, taken, dead);
    owner.close().unwrap();
    drop(owner);
    let next = take(&mut other, at(3), 1);
    assert_eq!((next[0].message.id(), next[0].doomed), ("a1", Some(Reason::KeyBlocked)));
    other.close().unwrap();
}

/// An import leaves a transaction marker at the end of `T.DLQ`, which no consumer receives. A pipeline whose letters
/// block their keys used to wait until it was read, and never delivered anything again.
#[test]
fn after_an_import_a_pipeline_whose_letters_block_their_keys_starts_again() {
    let world = World::new(1, &TIERS);
    let blocking = || StoreOptions { after_dead: AfterDead::BlockKey, ..ordered() };
    let mut engine = world.open_caught_up(blocking());
    let letter = ForeignLetter {
        message: message("f1").created(at(0)).build().unwrap(),
        origin: None,
        meta: Meta { created: at(0), attempts: 3, ..Meta::default() },
        history: History::default(),
    };
    engine.import(vec![letter], false, at(1).into()).unwrap();
    drop(engine);
    world.produce(&of_key(0..1, "a"));
    let mut engine = world.open_caught_up(blocking());
    assert_eq!(take(&mut engine, at(2), 1).len(), 1);
}
