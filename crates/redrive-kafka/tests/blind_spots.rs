//! What the engine reports about itself: lag and records by real topic and partition, and partitions that do not move.

mod support;

use std::time::Duration;

use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use redrive::internal::engine::{
    Deliver, PartitionFlow, ProblemKind, Query, SourcePosition, StoreOptions, Verdict,
};
use redrive_core::Meta;
use redrive_kafka::KafkaEngine;
use support::drive::{at, messages, settle, take};
use support::{LIMIT, World, wait};

const TIERS: [Duration; 1] = [Duration::from_secs(1)];

fn flow(engine: &mut KafkaEngine, topic: &str, partition: i32) -> Option<PartitionFlow> {
    engine.poll(&mut Vec::new()).unwrap();
    let flows = engine.condition().flows;
    flows.into_iter().find(|flow| *flow.topic == *topic && flow.partition == partition)
}

fn lag(engine: &mut KafkaEngine, topic: &str, partition: i32) -> Option<u64> {
    flow(engine, topic, partition)?.lag
}

/// Used to report one lag for the whole pipeline, as partition 0 of a topic with the pipeline's name, and it never
/// reached 0 again after a transaction.
#[test]
fn lag_and_records_are_told_by_topic_and_partition_and_ends_of_transactions_are_no_lag() {
    let world = World::new(2, &TIERS);
    let source = world.pipeline.source.clone();
    let tier = format!("{}.retry.1s", world.pipeline.name);
    let mut engine = world.open_caught_up(StoreOptions::default());
    let producer: BaseProducer = support::client().set("transactional.id", &source).create().unwrap();
    producer.init_transactions(LIMIT).unwrap();
    producer.begin_transaction().unwrap();
    for value in ["1", "2", "3"] {
        producer.send(BaseRecord::<str, str>::to(&source).partition(1).payload(value)).unwrap();
    }
    producer.commit_transaction(LIMIT).unwrap();
    wait("the lag of partition 1", || lag(&mut engine, &source, 1) == Some(3));
    assert_eq!(lag(&mut engine, &source, 0), Some(0));

    let taken = take(&mut engine, at(0), 3);
    let place = SourcePosition { topic: source.as_str().into(), partition: 1, offset: 0 };
    assert_eq!(taken[0].origin, Some(place), "what a service is told of its record");
    settle(&mut engine, taken, |delivery| match delivery.receipt.at {
        0 => Verdict::Retry { due: at(50_000), meta: Meta { attempts: 1, ..delivery.meta } },
        _ => Verdict::Done,
    });
    wait("no lag behind the end of the transaction", || {
        lag(&mut engine, &source, 1) == Some(0) && lag(&mut engine, &tier, 1) == Some(1)
    });
    assert_eq!(flow(&mut engine, &source, 1).unwrap().consumed, 3);
    assert_eq!(flow(&mut engine, &source, 1).unwrap().stalled_for, Duration::ZERO, "all of it has started");
    assert_eq!(flow(&mut engine, &tier, 1).unwrap().consumed, 1);
    let cluster = engine.condition().cluster.unwrap();
    assert!(cluster.member && cluster.reachable && cluster.rebalances > 0, "{cluster:?}");
    // The client reports the end of the partition once a second; the lag must stay 0.
    let until = std::time::Instant::now() + Duration::from_secs(3);
    while std::time::Instant::now() < until {
        assert_eq!(lag(&mut engine, &source, 1), Some(0));
        std::thread::sleep(Duration::from_millis(50));
    }
    engine.close().unwrap();
}

/// Used to report lag 0 and a clean status.
#[test]
fn a_partition_whose_position_has_expired_shows_its_lag() {
    let world = World::new(1, &TIERS);
    let mut engine = world.open_caught_up(StoreOptions::default());
    engine.close().unwrap();
    drop(engine);
    world.produce(&messages(0..10));
    support::delete_records(&world.pipeline.source, 0, 5);
    let mut engine = world.open(StoreOptions::default());
    wait("the partition is stopped, and its lag is known", || {
        let lag = lag(&mut engine, &world.pipeline.source, 0);
        engine.condition().partitions.stopped == 1 && lag == Some(10)
    });
    assert!(engine.condition().problems.iter().any(|problem| problem.kind == ProblemKind::LostRange));
    drop(engine);
}

/// The lag used to stop growing once there was no room for more records, however many arrived.
#[test]
fn the_lag_of_a_partition_that_does_not_move_goes_on_growing() {
    let world = World::new(1, &TIERS);
    let source = world.pipeline.source.clone();
    let mut engine = world.open_caught_up(StoreOptions::default());
    world.produce(&messages(0..40_000));
    wait("nothing more is read", || {
        let before = flow(&mut engine, &source, 0).unwrap().consumed;
        std::thread::sleep(Duration::from_secs(1));
        before > 0 && flow(&mut engine, &source, 0).unwrap().consumed == before
    });
    assert!(flow(&mut engine, &source, 0).unwrap().consumed < 40_000, "the rest is left at the broker");
    let stalled = flow(&mut engine, &source, 0).unwrap().stalled_for;
    wait("the first record waits longer and longer", || {
        flow(&mut engine, &source, 0).unwrap().stalled_for > stalled + Duration::from_secs(1)
    });
    world.produce(&messages(40_000..80_000));
    wait("the lag is what was written", || lag(&mut engine, &source, 0) == Some(80_000));
    engine.close().unwrap();
}
