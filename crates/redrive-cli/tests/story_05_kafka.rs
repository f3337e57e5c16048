//! Story 5 on Kafka: the downstream is down for a while. Nothing is taken from the topic, nothing is rewritten, nothing
//! is dead, and delivery resumes in an orderly way, even across a kill.
#![cfg(feature = "kafka")]

mod world;

use world::outage::Scene;
use world::process::Processor;
use world::{kafka, wait_for};

/// The number of records in the tiers and in the dead-letter topic.
fn rewritten(pipeline: &str) -> usize {
    let topics = ["retry.100ms", "retry.200ms", "retry.400ms", "DLQ"];
    let mut records = 0;
    topics.iter().for_each(|topic| kafka::read(&format!("{pipeline}.{topic}"), |_| records += 1));
    records
}

#[test]
fn an_outage_costs_few_calls_and_no_message_also_over_a_restart() {
    let orders = kafka::name("orders");
    kafka::create(&orders, 3);
    let bring = |_: &Processor, ids: std::ops::Range<usize>| {
        let record = |id| (format!("c-{}", id % 17), format!("{{\"id\":\"o-{id}\"}}"));
        kafka::produce(&orders, ids.map(record));
    };
    let source = format!("name = \"{orders}\"\nsource = \"{orders}\"\nid = \"json:/id\"");
    let scene = Scene { pipeline: &orders, engine: kafka::engine(&orders, "one"), source, bring: &bring };
    let dir = tempfile::tempdir().unwrap();
    scene.an_outage_costs_few_calls_and_no_message(dir.path(), |processor| {
        let rounds = || scene.shown(processor)["health"]["rounds"].as_u64().unwrap();
        let held = || scene.shown(processor)["pending"]["held"].as_u64().unwrap();
        let (before, began, lag) = (rewritten(&orders), rounds(), held());
        (scene.bring)(processor, 1_000..1_100);
        wait_for("more to be held", || held() >= lag + 80);
        wait_for("two more rounds of probes", || rounds() >= began + 2);
        // A failed probe is a retry, and a message that would probe a second time waits until another one has probed.
        let after = rewritten(&orders);
        let probes = (rounds() - began + 1) as usize * 2 * world::outage::PROBES;
        assert!(after <= before + probes, "{} records were rewritten while it was open", after - before);
        kafka::read(&format!("{orders}.DLQ"), |_| panic!("a letter for the outage"));
        100
    });
}
