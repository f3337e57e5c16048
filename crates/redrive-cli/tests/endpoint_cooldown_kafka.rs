//! Waiting endpoints on Kafka: shown by `status` and the API, across a kill.
#![cfg(feature = "kafka")]

mod world;

use std::ops::Range;

use world::cooldown::Scene;
use world::kafka;
use world::process::Processor;

#[test]
fn an_endpoint_in_cooldown_is_shown_and_stays_in_cooldown_over_a_kill() {
    let hooks = kafka::name("hooks");
    kafka::create(&hooks, 3);
    let bring = |_: &Processor, ids: Range<usize>, url: &str| {
        let record = |id| (format!("c-{}", id % 17), format!("{{\"id\":\"o-{id}\",\"url\":\"{url}\"}}"));
        kafka::produce(&hooks, ids.map(record));
    };
    let source = format!("name = \"{hooks}\"\nsource = \"{hooks}\"\nid = \"json:/id\"");
    let scene = Scene { pipeline: &hooks, engine: kafka::engine(&hooks, "one"), source, bring: &bring };
    let dir = tempfile::tempdir().unwrap();
    scene.an_endpoint_in_cooldown_is_shown_and_stays_in_cooldown_over_a_kill(dir.path());
}
