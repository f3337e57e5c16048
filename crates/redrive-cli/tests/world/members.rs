//! Members of a Kafka group whose pipeline has dead letters.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::process::{Processor, stderr, stdout};
use super::stub::Stub;
use super::{config, kafka, wait_for};

/// The configuration of one member.
pub fn config_of(member: &str, pipeline: &str, url: &str) -> String {
    let lines = format!(
        r#"name   = "{pipeline}"
id     = "json:/order_id"
tiers  = ["100ms", "1s"]
jitter = "none"
[pipeline.guard]
share  = "100%"          # all of them are to be dead"#
    );
    config(&kafka::engine(&format!("{pipeline}-delivery"), member), &lines, url)
}

/// A processor with `count` dead letters: orders with a negative amount, which the stub refuses until it is fixed.
pub fn with_letters(dir: &Path, count: u64) -> (Stub, Processor, String) {
    let pipeline = kafka::name("orders");
    kafka::create(&pipeline, 2);
    let order =
        |n| (format!("c-{}", n % 7), json!({ "order_id": format!("o-{n}"), "amount": -1 }).to_string());
    kafka::produce(&pipeline, (0..count).map(order));
    let stub = Stub::start(dir, &[]);
    let processor = Processor::start(dir, &config_of("redrive-0", &pipeline, &stub.url));
    wait_for("all of them to be dead", || letters(&processor, &pipeline)["open"] == count);
    (stub, processor, pipeline)
}

/// Another member, once it knows all letters.
pub fn join(dir: &Path, pipeline: &str, stub: &Stub, open: u64) -> Processor {
    let second = Processor::start(dir, &config_of("redrive-1", pipeline, &stub.url));
    wait_for("the other to know the letters", || letters(&second, pipeline)["open"] == open);
    second
}

/// How many letters are in each state.
pub fn letters(processor: &Processor, pipeline: &str) -> Value {
    processor.get(&format!("/v1/pipelines/{pipeline}")).json()["letters"].clone()
}

/// The output of a command that must succeed.
pub fn good(processor: &Processor, args: &[&str]) -> String {
    let ran = processor.cli(args);
    assert!(ran.status.success(), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

/// How often each message is in a topic, by its number of replays.
pub fn published(topic: &str) -> BTreeMap<(String, String), u32> {
    let mut times = BTreeMap::new();
    kafka::read(topic, |record| {
        let of = |name| kafka::header(record, name).unwrap_or_default();
        *times.entry((of("x-message-id"), of("x-replays"))).or_default() += 1;
    });
    times
}

/// The action log on a member.
pub fn actions(processor: &Processor, pipeline: &str) -> Vec<Value> {
    let lines = good(processor, &["audit", pipeline, "--actions", "--json"]);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
