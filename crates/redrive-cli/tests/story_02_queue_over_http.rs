//! Story 2, a queue without a broker, for a user: the real binary, real HTTP, a real kill.
//!
//! That each attempt is signed anew is shown by `webhook_verify` and by the tests of the sink.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use world::process::{Processor, stderr, stdout};
use world::receiver::{OK, Receiver, UNAVAILABLE};
use world::wait_for;

/// `redrive.toml` of the story, with shorter delays so that the test is fast.
fn config(url: &str) -> String {
    format!(
        r#"
[engine]
kind = "embedded"
dir  = "@DIR@"

[server]
listen = "@LISTEN@"

[[pipeline]]
name   = "invoices"
tiers  = ["500ms", "1s", "2s"]
jitter = "none"
[pipeline.sink.webhook]
url     = "{url}"
timeout = "10s"
allow_private_addresses = true
"#
    )
}

const MESSAGES: &str = "/v1/pipelines/invoices/messages";
const INVOICE: &str = r#"{"id":"inv-1","key":"acme","ttl":"1h","payload":{"amount":100}}"#;

#[test]
fn a_message_is_retried_with_its_id_and_sending_it_again_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let healthy = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&healthy);
    let receiver = Receiver::start(move |_| if answers.load(Ordering::SeqCst) { OK } else { UNAVAILABLE });
    let processor = Processor::start(dir.path(), &config(&receiver.url()));

    let first = processor.post(MESSAGES, INVOICE);
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(first.json(), serde_json::json!({"id": "inv-1", "state": "ready", "duplicate": false}));
    wait_for("the first attempt", || !receiver.requests().is_empty());

    let again = processor.post(MESSAGES, INVOICE);
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json()["duplicate"], true);
    wait_for("the state of a message that waits", || {
        processor.get("/v1/pipelines/invoices/messages/inv-1").json()["state"] == "delayed"
    });
    let state = processor.get("/v1/pipelines/invoices/messages/inv-1").json();
    assert_eq!(state["id"], "inv-1");
    assert!(state["attempts"].as_u64().unwrap() >= 1, "{state}");
    assert!(state["due"].as_str().unwrap().ends_with('Z'), "{state}");
    assert!(state["deadline"].as_str().unwrap().ends_with('Z'), "{state}");
    let attempt = &state["history"][0];
    assert_eq!((&attempt["attempt"], &attempt["class"]), (&1.into(), &"transient".into()), "{state}");
    assert_eq!((&attempt["kind"], &attempt["status"]), (&"status".into(), &503.into()), "{state}");
    assert!(attempt["error"].as_str().unwrap().starts_with("503 Service Unavailable"), "{state}");

    healthy.store(true, Ordering::SeqCst);
    wait_for("the message to succeed", || {
        processor.get("/v1/pipelines/invoices/messages/inv-1").json()["state"] == "succeeded"
    });
    let requests = receiver.requests();
    for (index, request) in requests.iter().enumerate() {
        assert_eq!(request.id(), "inv-1");
        assert_eq!(request.header("redrive-attempt"), Some((index + 1).to_string().as_str()));
        assert_eq!(request.header("redrive-key"), Some("acme"));
        assert_eq!(request.header("redrive-pipeline"), Some("invoices"));
        assert_eq!(request.body, r#"{"amount":100}"#);
    }
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(receiver.requests().len(), requests.len(), "the second POST made no second delivery");
}

#[test]
fn what_was_answered_with_202_is_delivered_after_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    // Nothing is delivered while it is paused, so messages that arrive later were kept.
    let mut processor = Processor::start(dir.path(), &config(&receiver.url()));
    let paused = processor.cli(&["pause", "invoices"]);
    assert!(paused.status.success(), "{}", stderr(&paused));
    for n in 0..20 {
        let answer = processor.post(MESSAGES, &format!(r#"{{"id":"inv-{n}","payload":{n}}}"#));
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    processor.kill();
    assert!(receiver.requests().is_empty());
    processor.restart();
    wait_for("all twenty after the restart", || {
        let _ = processor.cli(&["resume", "invoices"]);
        (0..20).all(|n| !receiver.requests_for(&format!("inv-{n}")).is_empty())
    });
}

/// A pause is an operator's decision: neither a clean stop nor a kill undoes it.
#[test]
fn a_pause_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let mut processor = Processor::start(dir.path(), &config(&receiver.url()));
    assert!(processor.cli(&["pause", "invoices"]).status.success());
    assert_eq!(processor.post(MESSAGES, INVOICE).status, 202);
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
    processor.restart();
    assert_eq!(processor.get("/v1/pipelines/invoices").json()["paused"], true);
    processor.kill();
    processor.restart();
    assert_eq!(processor.get("/v1/pipelines/invoices").json()["paused"], true);
    assert!(receiver.requests().is_empty());
    assert!(processor.cli(&["resume", "invoices"]).status.success());
    wait_for("the message after the resume", || !receiver.requests_for("inv-1").is_empty());
    processor.kill();
    processor.restart();
    assert_eq!(processor.get("/v1/pipelines/invoices").json()["paused"], false);
}

#[test]
fn many_messages_in_one_request_are_accepted_or_refused_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let processor = Processor::start(dir.path(), &config(&receiver.url()));
    let line = |n: u32| format!("{{\"id\":\"m-{n}\",\"payload\":{{\"n\":{n}}}}}\n");
    let lines: Vec<String> = (1..=10_000).map(line).collect();

    let mut broken = lines.clone();
    broken[6_788] = "{\"id\":\"m-6789\",\"payload\":\n".into();
    let refused = processor.post_as(MESSAGES, "application/x-ndjson", &broken.concat());
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.json()["message"].as_str().unwrap().contains("line 6789"), "{}", refused.body);
    let pipeline = processor.get("/v1/pipelines/invoices").json();
    assert_eq!((&pipeline["succeeded"], &pipeline["pending"]["ready"]), (&0.into(), &0.into()), "{pipeline}");

    let accepted = processor.post_as(MESSAGES, "application/x-ndjson", &lines.concat());
    assert_eq!(accepted.status, 202, "{}", accepted.body);
    wait_for("all of them to be delivered", || {
        processor.get("/v1/pipelines/invoices").json()["succeeded"] == 10_000
    });
    assert!(receiver.requests_for("m-6789").len() == 1);
}

#[test]
fn whoever_has_no_token_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let processor = Processor::start(dir.path(), &config(&receiver.url()));
    let bare = world::http::send("POST", &processor.url(MESSAGES), &[], INVOICE);
    assert_eq!(bare.status, 401, "{bare:?}");
    assert!(bare.json()["hint"].as_str().unwrap().contains("Authorization: Bearer"), "{}", bare.body);
    assert_eq!(processor.get("/v1/pipelines/invoices").json()["succeeded"], 0);
}

#[test]
fn sigterm_drains_and_exits_0() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| UNAVAILABLE);
    let mut processor = Processor::start(dir.path(), &config(&receiver.url()));
    assert_eq!(processor.post(MESSAGES, INVOICE).status, 202);
    wait_for("the first attempt", || !receiver.requests().is_empty());
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
    assert!(!processor.log().contains("amount"), "no payload in the log: {}", processor.log());
}

#[test]
fn without_a_processor_the_commands_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let output =
        world::process::redrive(dir.path()).args(["--url", "http://127.0.0.1:9", "status"]).output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("redrive processor"), "{}", stderr(&output));
}
