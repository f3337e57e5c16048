//! Story 8 on Kafka: a message that kills its receiver is found by the connections that break; and after a `kill -9` what
//! may have been in flight is suspected and cleared, also on a machine that has nothing left of its disk. The process that
//! dies of its message is played in `redrive-kafka-faults`.
#![cfg(feature = "kafka")]

mod world;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use world::pill::Scene;
use world::process::Processor;
use world::receiver::{OK, Receiver};
use world::{kafka, wait_for};

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

#[test]
fn what_was_in_flight_at_a_kill_runs_alone_on_another_machine_and_is_cleared() {
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    kafka::produce(&orders, (0..64).map(|number| record(&format!("o-{number}"))));
    let hangs = Arc::new(AtomicBool::new(true));
    let hung = Arc::clone(&hangs);
    let receiver = Receiver::start(move |_| {
        while hung.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        OK
    });
    let source = format!("name = \"{orders}\"\nsource = \"{orders}\"\nid = \"json:/id\"\nconcurrency = 64");
    let scene = Scene { pipeline: &orders, engine: kafka::engine(&orders, "one"), source, bring: &|_, _| {} };
    let dir = tempfile::tempdir().unwrap();
    let mut processor = Processor::start(dir.path(), &scene.config(&receiver.url()));
    let shown = |processor: &Processor| processor.get(&format!("/v1/pipelines/{orders}")).json();
    wait_for("all to be in flight", || shown(&processor)["pending"]["in_flight"] == 64);
    processor.kill();
    std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    hangs.store(false, SeqCst);
    processor.restart();
    wait_for("all to be delivered", || shown(&processor)["succeeded"] == 64);
    let log = processor.log();
    assert!(log.contains("the last run ended without a clean stop: "), "{log}");
    assert!(log.contains("(crash 1 of 3) runs alone"), "{log}");
    wait_for("all to be cleared", || processor.log().contains("suspects cleared"));
    let shown = shown(&processor);
    assert_eq!((&shown["dead"], &shown["letters"]["open"]), (&0.into(), &0.into()), "{shown}");
    let delivered: HashSet<String> =
        receiver.requests().iter().map(|request| request.id().to_owned()).collect();
    assert_eq!(delivered.len(), 64);
}
