//! What the engine does besides deliveries: stragglers, bitmaps, spilled bytes, retired tiers, new producers, long
//! waits.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use redrive::internal::engine::{Deliver, Delivery, Query, StoreOptions, Verdict};
use redrive_core::Meta;
use redrive_kafka::consume::mailbox::Mailbox;
use redrive_kafka::produce::outbox::Outbox;
use redrive_kafka::produce::{Body, Production, WriteOutcome};
use redrive_kafka::topics::scan::{Scan, Span};
use redrive_kafka::{GroupStart, KafkaEngine};
use support::drive::{at, finish_all, ids, messages, settle, take};
use support::{World, message, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

fn retry(due_ms: u64) -> impl Fn(&Delivery) -> Verdict {
    move |delivery| Verdict::Retry {
        due: at(due_ms),
        meta: Meta { attempts: delivery.meta.attempts + 1, ..delivery.meta },
    }
}

fn span(world: &World, topic: &str) -> Span {
    Scan::new(&world.cluster).unwrap().spans(topic).unwrap().remove(0)
}

/// A message that waits for hours in a one-minute tier would hold up the committed offset for as long.
#[test]
fn a_straggler_is_written_again_and_comes_once_at_its_own_time() {
    let world = World::new(1, &TIERS);
    world.produce(&messages(0..10));
    let mut engine = world.open(StoreOptions::default());
    engine.move_stragglers_after(Duration::from_millis(200));
    // The first message of the tier waits for hours, those behind it for seconds.
    let straggler = take(&mut engine, at(0), 1);
    let id = straggler[0].message.id().to_owned();
    settle(&mut engine, straggler, retry(7_200_000));
    let others = take(&mut engine, at(0), 9);
    settle(&mut engine, others, retry(100_000));
    let due = take(&mut engine, at(100_000), 9);
    settle(&mut engine, due, |_| Verdict::Done);
    let tier = format!("{}.retry.1m", world.pipeline.name);
    wait("the straggler is written again and its offset passed", || {
        engine.poll(&mut Vec::new()).unwrap();
        let span = span(&world, &tier);
        span.end > 10 && span.committed >= Some(10)
    });
    assert_eq!(engine.counts().pending(), 1);
    drop(engine);

    let mut engine = world.open_caught_up(StoreOptions::default());
    let mut early = Vec::new();
    engine.take(at(7_199_999), 10, &mut early).unwrap();
    assert!(early.is_empty(), "{:?}", ids(&early));
    let back = take(&mut engine, at(7_200_000), 1);
    let Delivery { meta, due, .. } = &back[0];
    assert_eq!((back[0].message.id(), meta.attempts, *due), (id.as_str(), 1, Some(at(7_200_000))));
    settle(&mut engine, back, |_| Verdict::Done);
    assert_eq!(engine.counts().pending(), 0);
    engine.close().unwrap();
}

/// Returns the size of the last value of each key of a compacted topic.
fn latest(world: &World, topic: &str) -> BTreeMap<String, Option<usize>> {
    let scan = Scan::new(&world.cluster).unwrap();
    let spans = scan.spans(topic).unwrap();
    let mut latest = BTreeMap::new();
    let note = |record: &rdkafka::message::BorrowedMessage<'_>| {
        let key = String::from_utf8(record.key().unwrap().to_vec()).unwrap();
        latest.insert(key, record.payload().map(<[u8]>::len));
    };
    scan.read(&spans, |span| span.low, note).unwrap();
    latest
}

#[test]
fn a_bitmap_is_taken_back_once_the_committed_offset_has_passed_it() {
    const CHUNK: usize = 65_536;
    let world = World::new(1, &TIERS);
    for part in messages(0..CHUNK as u32 + 100).chunks(10_000) {
        world.produce(part);
    }
    let mut engine = world.open(StoreOptions::default());
    let taken = take(&mut engine, at(0), CHUNK + 100);
    let is_open = |delivery: &Delivery| delivery.receipt.at < 4_000 && delivery.receipt.at.is_multiple_of(2);
    let (open, done): (Vec<_>, Vec<_>) = taken.into_iter().partition(is_open);
    settle(&mut engine, done, |_| Verdict::Done);
    let topic = format!("{}.progress", world.pipeline.name);
    let key = format!("{}/0/0", world.pipeline.source);
    assert!(latest(&world, &topic).get(&key).is_some_and(Option::is_some), "two thousand runs fit no note");
    settle(&mut engine, open, |_| Verdict::Done);
    wait("the bitmap is taken back", || {
        engine.poll(&mut Vec::new()).unwrap();
        latest(&world, &topic).get(&key) == Some(&None)
    });
    engine.close().unwrap();
    drop(engine);
    let mut engine = world.open_caught_up(StoreOptions::default());
    assert_eq!(engine.counts().pending(), 0);
    engine.close().unwrap();
}

fn spill_files(world: &World) -> usize {
    let Ok(dirs) = std::fs::read_dir(world.cluster.state_dir.join("kafka")) else { return 0 };
    let spills =
        dirs.flatten().map(|dir| dir.path()).filter(|path| path.extension().is_some_and(|e| e == "spill"));
    spills.map(|dir| std::fs::read_dir(dir).map_or(0, Iterator::count)).sum()
}

#[test]
fn what_has_no_place_in_memory_waits_in_files_and_comes_back_whole() {
    let world = World::new(1, &TIERS);
    let body = |n: u32| vec![n as u8; 256 << 10];
    let large: Vec<_> = (0..300)
        .map(|n| message(&format!("m{n}")).created(at(0)).payload(body(n)).build().unwrap())
        .collect();
    for part in large.chunks(50) {
        world.produce(part);
    }
    let mut engine = world.open(StoreOptions::default());
    assert_eq!(spill_files(&world), 0);
    for _ in 0..6 {
        let taken = take(&mut engine, at(0), 50);
        settle(&mut engine, taken, retry(60_000));
    }
    wait("the tier is read, and more of it than memory may hold", || {
        engine.poll(&mut Vec::new()).unwrap();
        engine.read_up_to(&format!("{}.retry.1m", world.pipeline.name), 0) == Some(300)
    });
    assert!(spill_files(&world) > 0, "75 MiB wait, and 48 may be in memory");
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        let back = take(&mut engine, at(60_000), 50);
        for delivery in &back {
            let number: u32 = delivery.message.id()[1..].parse().unwrap();
            assert!(delivery.message.payload() == Some(&body(number)), "m{number} has another payload");
            assert_eq!((delivery.meta.attempts, seen.insert(number)), (1, true));
        }
        settle(&mut engine, back, |_| Verdict::Done);
    }
    assert_eq!((seen.len(), engine.counts().pending()), (300, 0));
    engine.close().unwrap();
}

#[test]
fn tiers_that_are_no_longer_configured_are_read_until_they_are_empty() {
    let mut world = World::new(2, &TIERS);
    world.produce(&messages(0..20));
    let mut engine = world.open(StoreOptions::default());
    let taken = take(&mut engine, at(0), 20);
    settle(&mut engine, taken, retry(1_000));
    engine.close().unwrap();
    drop(engine);

    world.pipeline.tiers = vec![Duration::from_secs(2), Duration::from_mins(1)];
    let mut engine = world.open(StoreOptions::default());
    let back = take(&mut engine, at(1_000), 20);
    assert!(back.iter().all(|delivery| delivery.meta.attempts == 1), "attempts are told by the record");
    settle(&mut engine, back, retry(3_000));
    let old = Scan::new(&world.cluster).unwrap().spans(&format!("{}.retry.1s", world.pipeline.name)).unwrap();
    assert_eq!(old.iter().map(Span::lag).sum::<i64>(), 0, "and nothing new is written there");
    let done: BTreeSet<String> = finish_all(&mut [&mut engine], at(3_000), 20).into_iter().collect();
    assert_eq!(done.len(), 20);
    engine.close().unwrap();
}

/// As after a fatal error: the new producer resends the records of the old one, and every record ends once.
#[test]
fn a_producer_that_is_made_anew_sends_again_what_was_on_its_way() {
    let world = World::new(1, &TIERS);
    let mailbox = Arc::new(Mailbox::default());
    let mut outbox = Outbox::<u32>::new(world.cluster.producer(), &mailbox).unwrap();
    let (topic, mut ended): (Arc<str>, _) = (world.pipeline.source.as_str().into(), Vec::new());
    let send = |outbox: &mut Outbox<u32>, n: u32| {
        let body = Body::Plain { key: n.to_string(), value: Some(n.to_string().into_bytes()) };
        outbox.send(Production { topic: Arc::clone(&topic), partition: 0, body, then: n });
    };
    (0..400).for_each(|n| send(&mut outbox, n));
    outbox.flush(&mut ended);
    (400..500).for_each(|n| send(&mut outbox, n));
    outbox.begin_anew();
    (500..1_000).for_each(|n| send(&mut outbox, n));
    wait("everything is written", || {
        outbox.poll(&mut ended);
        outbox.is_empty()
    });
    let stored: BTreeSet<u32> = ended
        .iter()
        .filter(|(_, how)| matches!(how, WriteOutcome::Stored { .. }))
        .map(|(production, _)| production.then)
        .collect();
    assert_eq!((ended.len(), stored.len()), (1_000, 1_000), "each ends once");
    let written = latest(&world, &world.pipeline.source);
    assert_eq!(written.len(), 1_000, "and is there");
}

/// The engine does not poll for longer than the group's poll interval, and its queues are full: the polling thread
/// continues by itself, and no other member gets the partitions.
#[test]
fn a_member_that_takes_nothing_for_long_stays_in_its_group() {
    const INTERVAL: Duration = Duration::from_secs(6);
    let mut world = World::new(1, &TIERS);
    for key in ["max.poll.interval.ms", "session.timeout.ms"] {
        world.cluster.passed_on.push((key.to_owned(), INTERVAL.as_millis().to_string()));
    }
    world.produce(&messages(0..500));
    let mut engine = world.open(StoreOptions::default());
    let running = take(&mut engine, at(0), 10);
    let began = Instant::now();
    while began.elapsed() < INTERVAL + INTERVAL / 2 {
        std::thread::sleep(Duration::from_millis(100));
    }
    engine.poll(&mut Vec::new()).unwrap();
    assert!(running.iter().all(|delivery| engine.owns(delivery)), "the partition was taken away");
    settle(&mut engine, running, |_| Verdict::Done);
    let rest = finish_all(&mut [&mut engine], at(0), 490);
    assert_eq!(rest.into_iter().collect::<BTreeSet<_>>().len(), 490, "and nothing comes twice");
    engine.close().unwrap();
}

#[test]
fn where_a_group_begins_is_decided_once() {
    let mut world = World::new(1, &TIERS);
    world.produce(&messages(0..5));
    world.cluster.start = Some(GroupStart::Latest);
    let engine = world.open_caught_up(StoreOptions::default());
    assert_eq!(engine.counts().pending(), 0, "what was there before is not asked for");
    drop(engine);
    world.produce(&messages(5..10));
    world.cluster.start = Some(GroupStart::Earliest);
    let mut engine: KafkaEngine = world.open_caught_up(StoreOptions::default());
    let taken = take(&mut engine, at(0), 5);
    assert_eq!(
        ids(&taken),
        (5..10).map(|n| format!("m{n}")).collect(),
        "neither lost nor from the beginning"
    );
    engine.close().unwrap();
}
