//! A source that gets more partitions while keys are ordered: every start applies the same rule, and the documented fix
//! works.

mod support;

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use redrive::internal::engine::{Deliver, EngineError, Query, Verdict};
use redrive_core::Meta;
use redrive_kafka::topics::Topics;
use support::drive::{at, finish_all, of_key, ordered, settle, take};
use support::{LIMIT, ProducedOffsets, World, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

fn partitions(topic: &str) -> usize {
    let asker: BaseConsumer = support::client().create().unwrap();
    let metadata = asker.fetch_metadata(Some(topic), LIMIT).expect("the broker answers");
    metadata.topics()[0].partitions().len()
}

/// Every process used to end with "try again", and the next start extended the tiers by itself, so that a retry was
/// overtaken without being counted, and a static member never got the new partitions of the tiers.
#[test]
fn a_grown_source_is_refused_until_the_tiers_are_extended_and_then_everything_is_read() {
    let mut world = World::new(1, &TIERS);
    world.cluster.passed_on.push(("topic.metadata.refresh.interval.ms".to_owned(), "500".to_owned()));
    world.produce(&of_key(0..2, "a"));
    let mut engine = world.open_caught_up(ordered());
    let first = take(&mut engine, at(0), 1);
    settle(&mut engine, first, |delivery| Verdict::Retry {
        due: at(50_000),
        meta: Meta { attempts: 1, ..delivery.meta },
    });

    support::grow(&world.pipeline.source, 3);
    world.partitions = 3;
    let mut fault = None;
    wait("the process ends by itself", || {
        fault = engine.poll(&mut Vec::new()).err();
        fault.is_some()
    });
    assert!(matches!(fault, Some(EngineError::Directory { .. })), "{fault:?}");
    drop(engine);

    // Every start is refused, even if topics may be created.
    for _ in 0..2 {
        let refused = world.stores().engine(&world.pipeline.name, ordered()).unwrap_err();
        let EngineError::Directory { problem, fix } = refused else { panic!("{refused:?}") };
        assert!(problem.contains("has 3 partitions and"), "{problem}");
        assert!(fix.contains("redrive check --kafka"), "{fix}");
    }
    let topics = Topics::of(&world.pipeline);
    assert_eq!(partitions(&topics.tiers[0].1), 1, "nothing was extended behind anybody's back");

    for topic in topics.tiers.iter().map(|(_, name)| name).chain([&topics.replay]) {
        support::grow(topic, 3);
    }
    // 'b' is 98 and 'd' is 100: partitions 2 and 1 of three.
    let producer = support::client().create_with_context(ProducedOffsets::default()).unwrap();
    for key in ["b", "d"] {
        world.produce_by(&producer, &of_key(0..2, key));
    }
    let mut engine = world.open(ordered());
    let done = finish_all(&mut [&mut engine], at(60_000), 6);
    assert_eq!(done.len(), 6, "{done:?}");
    assert_eq!(engine.counts().key_order_voided, 1, "one message waited when the partitions of keys changed");
    engine.close().unwrap();
    drop(engine);

    let mut engine = world.open_caught_up(ordered());
    assert_eq!(engine.counts().key_order_voided, 0, "counted once");
    engine.close().unwrap();
}
