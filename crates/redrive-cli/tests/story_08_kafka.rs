//! Story 8 on Kafka: a message that kills its receiver is found by the broken connections; and a `kill -9` makes no
//! message a suspect, even on a machine with an empty disk. Processes that die because of a message are tested in
//! `redrive-kafka-faults`.
#![cfg(feature = "kafka")]

mod world;

use world::kafka;
use world::kills::{self, Disk};
use world::pill::Scene;
use world::process::Processor;

fn record(id: &str) -> (String, String) {
    (id.to_owned(), format!("{{\"id\":\"{id}\"}}"))
}

#[test]
fn a_message_that_kills_its_receiver_is_found_by_three_broken_connections() {
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    let bring = |_: &Processor, id: &str| kafka::produce(&orders, [record(id)]);
    let source = format!("name = \"{orders}\"\nsource = \"{orders}\"\nid = \"json:/id\"");
    let scene = Scene { pipeline: &orders, engine: kafka::engine(&orders, "one"), source, bring: &bring };
    let dir = tempfile::tempdir().unwrap();
    scene.a_pill_is_found_by_three_broken_connections(dir.path());
}

/// Sixty-four orders at a slow service, and a process that is killed while delivering them; each time the next one
/// starts with an empty disk. No message runs alone: all of them are at the service again, concurrently.
#[test]
fn what_was_in_flight_at_a_kill_goes_on_at_full_concurrency_on_another_machine() {
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    kafka::produce(&orders, (0..64).map(|number| record(&format!("o-{number}"))));
    let source = format!("name = \"{orders}\"\nsource = \"{orders}\"\nid = \"json:/id\"\nconcurrency = 64");
    let scene = Scene { pipeline: &orders, engine: kafka::engine(&orders, "one"), source, bring: &|_, _| {} };
    let dir = tempfile::tempdir().unwrap();
    kills::nobody_waits_alone(&scene, dir.path(), 64, 4, Disk::Lost);
}
