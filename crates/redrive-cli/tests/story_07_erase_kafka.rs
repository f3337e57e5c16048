//! Story 7 on Kafka, the deletion: the same commands and the same output, which mentions what Kafka keeps for a while.
#![cfg(feature = "kafka")]

mod world;

use rdkafka::Message as _;
use serde_json::json;
use world::erasing::{LETTERS, SECRET, letters_are_erased_for_good, payload};
use world::process::Processor;
use world::stub::Stub;
use world::{kafka, wait_for};

/// The number of records of a topic that contain the secret.
fn records_with_the_secret(topic: &str) -> usize {
    let mut found = 0;
    kafka::read(topic, |record| {
        let payload = record.payload().unwrap_or_default();
        found += usize::from(payload.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));
    });
    found
}

#[test]
fn letters_are_erased_from_every_file_and_from_the_letters_topic_and_what_stays_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = kafka::name("orders");
    kafka::create(&pipeline, 2);
    kafka::produce(&pipeline, (0..LETTERS).map(|n| (format!("c-{n}"), payload(n))));
    let stub = Stub::start(dir.path(), &[]);
    let lines = format!(
        r#"name   = "{pipeline}"
id     = "json:/order_id"
tiers  = ["100ms", "1s"]
jitter = "none"
[pipeline.guard]
share  = "100%"          # all of them are to be dead"#
    );
    let engine = kafka::engine(&format!("{pipeline}-delivery"), "redrive-0");
    let mut processor = Processor::start(dir.path(), &world::config(&engine, &lines, &stub.url));
    wait_for("all of them to be dead", || {
        processor.get(&format!("/v1/pipelines/{pipeline}")).json()["letters"]["open"] == json!(LETTERS)
    });
    let dlq = format!("{pipeline}.DLQ");
    assert_eq!(records_with_the_secret(&dlq), 2);
    let said = letters_are_erased_for_good(dir.path(), &mut processor, &pipeline);
    assert_eq!(records_with_the_secret(&dlq), 0, "open letters are written again, and the front is deleted");
    for topic in [dlq, format!("{pipeline}.DLQ.state"), format!("{pipeline}.replay")] {
        assert!(said.contains(&topic), "{said}");
    }
    assert!(said.contains(&format!("{pipeline}: the message itself")), "{said}");
}
