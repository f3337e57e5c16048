//! `profile = "payments"` on Kafka: its budget dead-letters nothing in an outage, and holds in a healthy sink.
#![cfg(feature = "kafka")]

mod world;

use world::kafka;
use world::payments::Scene;
use world::process::Processor;

fn play(scene: impl Fn(&Scene<'_>)) {
    let topic = kafka::name("payments");
    kafka::create(&topic, 3);
    let bring = |_: &Processor, ids: std::ops::Range<usize>| {
        let record = |id| (format!("c-{}", id % 17), format!("{{\"id\":\"o-{id}\"}}"));
        kafka::produce(&topic, ids.map(record));
    };
    let source = format!("name = \"{topic}\"\nsource = \"{topic}\"\nid = \"json:/id\"");
    scene(&Scene { pipeline: &topic, engine: kafka::engine(&topic, "one"), source, bring: &bring });
}

#[test]
fn an_outage_makes_no_letters() {
    play(|scene| scene.an_outage_makes_no_letters(tempfile::tempdir().unwrap().path()));
}

#[test]
fn a_healthy_sink_gets_no_more_retries_than_the_budget() {
    play(|scene| {
        scene.a_healthy_sink_gets_no_more_retries_than_the_budget(tempfile::tempdir().unwrap().path());
    });
}
