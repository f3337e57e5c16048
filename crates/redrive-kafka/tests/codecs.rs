//! Compression: every codec that producers and clusters use is read; a batch that cannot be decoded stops only its own
//! partition, and is reported.

mod support;

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use redrive::internal::engine::{Deliver, ProblemKind, Query, StoreOptions, Verdict};
use redrive_kafka::KafkaEngine;
use redrive_lab::kafka::broker::Broker;
use support::drive::{at, finish_all, ids, messages, settle, take};
use support::{ProducedOffsets, World, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

fn private_broker(dir: &Path) -> Broker {
    Broker::up(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), dir).expect("a broker")
}

/// Marks the first batch of a partition with another codec, as if its producer knew more codecs than we do.
fn recode(broker: &Broker, topic: &str, partition: i32, codec: u8) {
    const ATTRIBUTES: u64 = 22;
    let log = broker.partition_dir(topic, partition).unwrap().join("00000000000000000000.log");
    let file = std::fs::File::options().write(true).open(log).unwrap();
    file.write_all_at(&[codec], ATTRIBUTES).unwrap();
}

fn problem(engine: &mut KafkaEngine) -> (ProblemKind, String, String) {
    let mut found = None;
    wait("the problem is told", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        found = engine.condition().problems.pop();
        found.is_some()
    });
    found.map(|problem| (problem.kind, problem.place, problem.text)).unwrap()
}

#[test]
fn every_codec_is_read_in_the_source_and_in_our_own_topics() {
    let world = World::new(1, &TIERS);
    for (n, codec) in ["none", "gzip", "snappy", "lz4", "zstd"].into_iter().enumerate() {
        let mut config = support::client_at(&world.brokers);
        let producer =
            config.set("compression.type", codec).create_with_context(ProducedOffsets::default()).unwrap();
        let n = u32::try_from(n).unwrap() * 10;
        world.produce_by(&producer, &messages(n..n + 10));
    }
    let mut engine = world.open_caught_up(StoreOptions::default());
    // A cluster may compress every topic.
    for topic in ["retry.1s", "DLQ", "DLQ.state", "progress"] {
        support::compress(&format!("{}.{topic}", world.pipeline.name), "zstd");
    }
    let taken = take(&mut engine, at(0), 50);
    settle(&mut engine, taken, |delivery| Verdict::Retry { due: at(500), meta: delivery.meta });
    let mut died = take(&mut engine, at(500), 50);
    let rest = died.split_off(10);
    let reason = redrive_core::Reason::Gone;
    settle(&mut engine, died, |delivery| Verdict::Dead { reason, meta: delivery.meta, at: at(600) });
    settle(&mut engine, rest, |_| Verdict::Done);
    engine.close().unwrap();
    drop(engine);
    let mut engine = world.open_caught_up(StoreOptions::default());
    assert_eq!((engine.counts().letters_open, engine.counts().pending()), (10, 0));
    assert!(engine.condition().problems.is_empty());
    engine.close().unwrap();
}

#[test]
fn a_batch_that_cannot_be_decoded_stops_its_partition_and_nothing_else_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let broker = private_broker(dir.path());
    let world = World::at(broker.address(), 2, &TIERS);
    let mut config = support::client_at(&world.brokers);
    let producer =
        config.set("compression.type", "lz4").create_with_context(ProducedOffsets::default()).unwrap();
    world.produce_by(&producer, &messages(0..20));
    // A codec that does not exist yet.
    recode(&broker, &world.pipeline.source, 0, 5);
    for _ in 0..2 {
        let mut engine = world.open(StoreOptions::default());
        let (kind, place, text) = problem(&mut engine);
        assert_eq!((kind, place), (ProblemKind::Decode, format!("{}/0", world.pipeline.source)));
        assert!(text.contains("compressed") && text.contains("zstd"), "{text}");
        let partitions = engine.condition().partitions;
        assert_eq!((partitions.stopped, partitions.reading), (1, 7));
        engine.close().unwrap();
    }
    let mut engine = world.open(StoreOptions::default());
    let done = finish_all(&mut [&mut engine], at(0), 10);
    assert_eq!(done.len(), 10, "the other partition goes on");
    // Damaged data rather than an unknown codec: the batch is marked as zstd but is not.
    recode(&broker, &world.pipeline.source, 0, 4);
    wait("it is told as damage", || {
        engine.poll(&mut Vec::new()).unwrap();
        engine.condition().problems.iter().any(|problem| problem.text.contains("cannot be decoded"))
    });
    // Somebody repaired it, or another replica leads: reading continues by itself.
    recode(&broker, &world.pipeline.source, 0, 3);
    let rest = take(&mut engine, at(0), 10);
    assert_eq!((ids(&rest).len(), engine.condition().problems.len()), (10, 0));
    engine.close().unwrap();
}

/// First deliveries do not wait for letters, and unreadable letters block nothing else.
#[test]
fn letters_that_cannot_be_decoded_hold_up_no_delivery_and_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let broker = private_broker(dir.path());
    let world = World::at(broker.address(), 1, &TIERS);
    world.produce(&messages(0..20));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let died = take(&mut engine, at(0), 10);
    let reason = redrive_core::Reason::Gone;
    settle(&mut engine, died, |delivery| Verdict::Dead { reason, meta: delivery.meta, at: at(600) });
    engine.close().unwrap();
    drop(engine);
    let letters = format!("{}.DLQ", world.pipeline.name);
    recode(&broker, &letters, 0, 5);
    let mut engine = world.open(StoreOptions::default());
    assert_eq!(finish_all(&mut [&mut engine], at(0), 10).len(), 10, "deliveries go on");
    let (kind, place, text) = problem(&mut engine);
    assert_eq!((kind, place), (ProblemKind::Letters, letters.clone()));
    assert!(text.contains("cannot be read"), "{text}");
    assert!(engine.condition().letters_loading);
    let error = engine.letters(None, None, 10).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
    recode(&broker, &letters, 0, 3);
    wait("the letters are known", || {
        engine.poll(&mut Vec::new()).unwrap();
        !engine.condition().letters_loading
    });
    assert_eq!(engine.letters(None, None, 100).unwrap().len(), 10);
    engine.close().unwrap();
}
