//! On Kafka a member lists the records it has read of its partitions; messages made due or cancelled move between
//! topics, and a kill does not undo that.
#![cfg(feature = "kafka")]

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::{Value, json};
use world::process::{Processor, stderr, stdout};
use world::receiver::{OK, Receiver, UNAVAILABLE};
use world::{kafka, wait_for};

fn config(pipeline: &str, url: &str) -> String {
    let lines = format!(
        r#"name   = "{pipeline}"
id     = "json:/order_id"
tiers  = ["1h", "2h"]
jitter = "none"
[pipeline.guard]
share  = "100%"
[pipeline.breaker]
enabled = false"#
    );
    world::config(&kafka::engine(&format!("{pipeline}-delivery"), "redrive-0"), &lines, url)
}

fn good(processor: &Processor, args: &[&str]) -> String {
    let ran = processor.cli(args);
    assert!(ran.status.success(), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

fn listed(processor: &Processor, pipeline: &str) -> Vec<String> {
    let listed: Value =
        serde_json::from_str(&good(processor, &["messages", pipeline, "--state", "delayed", "--json"]))
            .unwrap();
    let ids = listed["messages"].as_array().unwrap().iter();
    let mut ids: Vec<String> = ids.map(|message| message["id"].as_str().unwrap().to_owned()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn what_waits_in_the_tiers_is_listed_made_due_and_cancelled_through_kills() {
    let dir = tempfile::tempdir().unwrap();
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    kafka::produce(
        &orders,
        (0..4).map(|n| (format!("c-{n}"), json!({ "order_id": format!("o-{n}"), "amount": 1 }).to_string())),
    );
    let fixed = Arc::new(AtomicBool::new(false));
    let is_fixed = Arc::clone(&fixed);
    let receiver = Receiver::start(move |_| if is_fixed.load(SeqCst) { OK } else { UNAVAILABLE });
    let mut processor = Processor::start(dir.path(), &config(&orders, &receiver.url()));
    wait_for("all of them to wait, and to be read", || listed(&processor, &orders).len() == 4);
    assert_eq!(listed(&processor, &orders), ["o-0", "o-1", "o-2", "o-3"]);

    // By id, for which Kafka has no index, and by the position of its record.
    let shown = good(&processor, &["message", "o-1"]);
    assert!(shown.contains("state delayed") && shown.contains("503 Service Unavailable"), "{shown}");
    let said = good(&processor, &["messages", &orders, "cancel", "o-1"]);
    assert!(said.starts_with(&format!("o-1   cancelled as letter {orders}/")), "{said}");
    let page = processor.get(&format!("/v1/pipelines/{orders}/messages?filter=id:o-2")).json();
    let number = page["messages"][0]["number"].as_str().unwrap().to_owned();
    good(&processor, &["messages", &orders, "cancel", &number]);
    processor.kill();
    processor.restart();
    wait_for("what is left to be read", || listed(&processor, &orders) == ["o-0", "o-3"]);
    let letters = || processor.get(&format!("/v1/pipelines/{orders}/letters")).json();
    wait_for("the letters", || letters()["letters"].as_array().is_some_and(|all| all.len() == 2));
    let all = letters();
    assert!(all["letters"].as_array().unwrap().iter().all(|letter| letter["reason"] == "cancelled"), "{all}");
    let shown = good(&processor, &["message", "o-1"]);
    assert!(shown.contains("state dead") && shown.contains("reason cancelled"), "{shown}");

    // Made due: its next record is due now, which the next process knows too.
    fixed.store(true, SeqCst);
    assert_eq!(good(&processor, &["messages", &orders, "retry-now", "o-0"]), "o-0   due now\n");
    wait_for("its delivery", || receiver.requests_for("o-0").len() == 2);
    wait_for("the count", || listed(&processor, &orders) == ["o-3"]);
    processor.kill();
    processor.restart();
    wait_for("what is left to be read", || listed(&processor, &orders) == ["o-3"]);
    assert_eq!(receiver.requests_for("o-3").len(), 1, "it waits as before");
    assert_eq!(
        receiver.requests_for("o-1").len() + receiver.requests_for("o-2").len(),
        2,
        "as before they were cancelled"
    );
}
