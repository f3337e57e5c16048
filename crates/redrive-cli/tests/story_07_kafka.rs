//! Story 7 on Kafka: the orders of a quarter, and no others, by the times of their records; and actions are recorded
//! beside each letter, for readers of the topic.
#![cfg(feature = "kafka")]

mod world;

use std::path::Path;

use serde_json::{Value, json};
use world::process::{Processor, redrive, stderr, stdout};
use world::receiver::{Receiver, Reply};
use world::stub::Stub;
use world::{kafka, wait_for};

fn config(topic: &str, url: &str) -> String {
    let lines = format!("source = \"{topic}\"\nid     = \"json:/order_id\"\ntiers  = [\"200ms\"]");
    world::config(&kafka::engine(&format!("{topic}-delivery"), "redrive-0"), &lines, url)
}

fn audit(dir: &Path, topic: &str, applied: &str, more: &[&str]) -> (Option<i32>, Value) {
    let args = [&["audit", topic, "--applied", applied, "--json", "-q"][..], more].concat();
    let ran = redrive(dir).args(args).output().unwrap();
    let said = stdout(&ran) + &stderr(&ran);
    (ran.status.code(), serde_json::from_str(&said).unwrap_or(Value::String(said)))
}

#[test]
fn the_orders_of_a_time_are_audited_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let topic = kafka::name("orders");
    kafka::create(&topic, 2);
    let hours_ago = |hours: u32| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        i64::try_from(since.as_millis()).unwrap() - i64::from(hours) * 3_600_000
    };
    let order = |n: u32| json!({"order_id": format!("o-{n}")}).to_string();
    kafka::produce_dated(&topic, (0..3).map(|n| (hours_ago(5), order(n))));
    kafka::produce_dated(&topic, (3..8).map(|n| (hours_ago(3), order(n))));
    kafka::produce_dated(&topic, (8..10).map(|n| (hours_ago(1), order(n))));
    let _processor = Processor::start(dir.path(), &config(&topic, &stub.url));
    wait_for("all of them", || audit(dir.path(), &topic, &stub.url, &[]).1["succeeded"] == 10);

    let (code, found) = audit(dir.path(), &topic, &stub.url, &["--since", "4h", "--until", "2h"]);
    assert_eq!(code, Some(0), "{found}");
    let figures = (&found["produced"], &found["succeeded"], &found["missing"], &found["not_produced"]);
    assert_eq!(figures, (&json!(5), &json!(5), &json!(0), &json!(0)), "{found}");
    assert_eq!(found["proof"], "by id against the downstream's ledger", "{found}");
    let (_, found) = audit(dir.path(), &topic, &stub.url, &["--until", "4h"]);
    assert_eq!(found["produced"], 3, "{found}");
    let (_, found) = audit(dir.path(), &topic, &stub.url, &["--since", "2h"]);
    assert_eq!(found["produced"], 2, "{found}");
    // A witness without the effects: what Redrive says about itself proves nothing.
    let nobody = Stub::start(dir.path(), &[]);
    let (code, found) = audit(dir.path(), &topic, &nobody.url, &["--since", "2h"]);
    assert_eq!((code, &found["missing_ids"]), (Some(1), &json!(["o-8", "o-9"])), "{found}");

    for (more, problem) in [
        (&["--since", "2026-10-01", "--until", "2026-07-01"][..], "--since is not before --until"),
        (&["--until", "soon"], "--until `soon` is neither a duration nor a time"),
    ] {
        let (code, said) = audit(dir.path(), &topic, &stub.url, more);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.to_string().contains(problem), "{said}");
    }
}

const REFUSED: Reply = ("422 Unprocessable Content", "");

/// The latest state of each letter, from the topic itself.
fn states(topic: &str) -> Vec<Value> {
    let mut found = std::collections::BTreeMap::new();
    kafka::read(&format!("{topic}.DLQ.state"), |record| {
        use rdkafka::Message as _;
        let state: Value = serde_json::from_slice(record.payload().unwrap_or_default()).unwrap_or_default();
        if state["state"].is_string() {
            found.insert(record.key().unwrap_or_default().to_vec(), state);
        }
    });
    found.into_values().collect()
}

#[test]
fn who_changed_a_letter_stands_beside_it_in_the_topic() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| REFUSED);
    let topic = kafka::name("orders");
    kafka::create(&topic, 1);
    kafka::produce(
        &topic,
        (0..2).map(|n| (format!("c-{n}"), json!({"order_id": format!("o-{n}")}).to_string())),
    );
    std::fs::write(dir.path().join("ops.token"), "ops-token-9876543210").unwrap();
    let text = config(&topic, &receiver.url()).replace(
        "[[pipeline]]",
        "[[server.token]]\nname = \"ops@example.com\"\nscopes = [\"read\", \"replay\", \"discard\"]\nsecret_file = \"ops.token\"\n[[pipeline]]",
    );
    let processor = Processor::start(dir.path(), &text);
    wait_for("the letters", || {
        let bearer = ("authorization", "Bearer ops-token-9876543210");
        let answer =
            world::http::send("GET", &processor.url(&format!("/v1/pipelines/{topic}")), &[bearer], "");
        answer.json()["letters"]["open"] == 2
    });
    let change = |args: &[&str], code: i32| {
        let done = processor.cli(&[args, &["--token-file", "ops.token"]].concat());
        assert_eq!(done.status.code(), Some(code), "{args:?}: {}{}", stdout(&done), stderr(&done));
    };
    change(&["dlq", "discard", &topic, "--ids", "o-0", "--reason", "test order"], 0);
    // It is refused again, as expected; the replay is still recorded.
    change(&["dlq", "replay", &topic, "--ids", "o-1"], 1);
    wait_for("both changes", || states(&topic).len() == 2);
    for state in states(&topic) {
        assert_eq!(state["actor"], "ops@example.com", "{state}");
    }
}

#[test]
fn an_export_holds_neither_what_was_redacted_nor_an_authorization() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| REFUSED);
    let topic = kafka::name("orders");
    kafka::create(&topic, 1);
    let order = json!({ "order_id": "o-1", "card": 4_111_111_111_111_111_u64, "email": "eve@example.com", "note": "for eve@example.com" });
    let header = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    kafka::produce_raw(
        &topic,
        [kafka::Raw {
            partition: 0,
            key: Some(b"eve@example.com".to_vec()),
            value: Some(order.to_string().into_bytes()),
            headers: vec![header("Authorization", "Bearer customer-s3cret"), header("x-trace", "t-1")],
        }],
    );
    let processor = Processor::start(dir.path(), &config(&topic, &receiver.url()));
    wait_for("the letter", || {
        processor.get(&format!("/v1/pipelines/{topic}")).json()["letters"]["open"] == 1
    });
    let export = |more: &[&str]| {
        let ran = processor.cli(&[&["dlq", "export", &topic][..], more].concat());
        assert!(ran.status.success(), "{}{}", stdout(&ran), stderr(&ran));
        stdout(&ran)
    };
    let text = export(&["--redact", "/card,/email"]);
    for secret in ["4111111111111111", "eve@example.com", "customer-s3cret"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(text.contains("\"x-trace\":\"t-1\""), "what is no secret stays: {text}");
    // Without redaction everything but the header is exported; this proves that the test above can fail.
    let whole = export(&[]);
    assert!(whole.contains("4111111111111111") && whole.contains("eve@example.com"), "{whole}");
    assert!(![text, whole].concat().to_lowercase().contains("authorization"));
}
