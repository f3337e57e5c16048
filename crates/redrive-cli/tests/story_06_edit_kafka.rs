//! Story 6 on Kafka, the edit: the same commands and the same output, on topics.
#![cfg(feature = "kafka")]

mod world;

use world::edits::{
    FRENCH, GERMAN, a_letter_that_goes_on_under_a_new_id_counts_once,
    an_edit_asks_for_the_id_and_removes_what_it_is_told_to, letters_are_edited_replayed_and_undone, payload,
};
use world::process::{Processor, stderr, stdout};
use world::stub::Stub;
use world::{kafka, wait_for};

#[test]
fn letters_are_edited_with_a_dry_run_replayed_and_undone() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = kafka::name("orders");
    kafka::create(&pipeline, 2);
    kafka::produce(&pipeline, (0..GERMAN + FRENCH).map(|n| (format!("c-{n}"), payload(n))));
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
    let processor = Processor::start(dir.path(), &world::config(&engine, &lines, &stub.url));
    wait_for("all of them to be dead", || {
        processor.get(&format!("/v1/pipelines/{pipeline}")).json()["letters"]["open"] == GERMAN + FRENCH
    });
    letters_are_edited_replayed_and_undone(&stub, processor, &pipeline);
}

#[test]
fn what_is_not_json_is_named_and_another_way_is_offered() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = kafka::name("orders");
    kafka::create(&pipeline, 1);
    let stub = Stub::start(dir.path(), &[]);
    let lines = format!("name = \"{pipeline}\"\ntiers = [\"100ms\"]\njitter = \"none\"");
    let engine = kafka::engine(&format!("{pipeline}-delivery"), "redrive-0");
    let processor = Processor::start(dir.path(), &world::config(&engine, &lines, &stub.url));
    let raw = serde_json::json!({ "message": "raw", "payload": { "utf8": "no json" }, "error": "422" });
    std::fs::write(processor.dir.join("letters.ndjson"), raw.to_string()).unwrap();
    let import = ["dlq", "import", "--file", "letters.ndjson", "--pipeline", &pipeline];
    assert!(processor.cli(&import).status.success());
    let edited = processor.cli(&["dlq", "edit", &pipeline, "--all", "--set", "/amount=1"]);
    let text = stdout(&edited);
    assert_eq!(edited.status.code(), Some(1), "{text}{}", stderr(&edited));
    assert!(text.starts_with("edited 0 letters\n1 is not JSON, left unchanged: "), "{text}");
    assert!(text.contains(&format!("redrive dlq export {pipeline} --filter id:MESSAGE")), "{text}");
    let import = format!("redrive dlq import --file letters.ndjson --pipeline {pipeline}");
    assert!(text.contains(&import), "{text}");
}

#[test]
fn a_letter_with_a_new_id_is_found_by_both_and_audited_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = kafka::name("orders");
    kafka::create(&pipeline, 1);
    let stub = Stub::start(dir.path(), &[]);
    let lines =
        format!("name = \"{pipeline}\"\nid = \"json:/order_id\"\ntiers = [\"100ms\"]\njitter = \"none\"");
    let engine = kafka::engine(&format!("{pipeline}-delivery"), "redrive-0");
    let processor = Processor::start(dir.path(), &world::config(&engine, &lines, &stub.url));
    a_letter_that_goes_on_under_a_new_id_counts_once(&stub, &processor, &pipeline);
}

#[test]
fn an_edit_asks_for_the_id_after_an_unknown_end_and_removes_values_and_headers() {
    let dir = tempfile::tempdir().unwrap();
    let pipeline = kafka::name("orders");
    kafka::create(&pipeline, 1);
    let stub = Stub::start(dir.path(), &[]);
    let lines = format!("name = \"{pipeline}\"\nid = \"json:/order_id\"\ntiers = [\"100ms\"]");
    let engine = kafka::engine(&format!("{pipeline}-delivery"), "redrive-0");
    let processor = Processor::start(dir.path(), &world::config(&engine, &lines, &stub.url));
    an_edit_asks_for_the_id_and_removes_what_it_is_told_to(&processor, &pipeline);
}
