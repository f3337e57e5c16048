//! Faults with subscriptions, with the real binary: a crash before a purge is announced, a changed hash key, a damaged
//! log, a missing key, messages that cannot be pushed.

#[path = "../../redrive-sinks/tests/push/server.rs"]
#[allow(dead_code, reason = "the tests of the sinks use the rest")]
mod server;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use server::{PlainServer, Reply, key_file};
use tokio::runtime::Runtime;
use world::process::{Processor, redrive, stderr, stdout};
use world::wait_for;

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

fn config(vapid: &Path, more: &str) -> String {
    format!(
        "[engine]\ndir = \"@DIR@\"\n[server]\nlisten = \"@LISTEN@\"\n[[pipeline]]\nname = \"push\"\nprofile = \"push\"\n\
         [pipeline.sink.webpush]\nvapid_key_file = \"{}\"\nsubject = \"mailto:ops@example.com\"\n\
         allow_private_addresses = true\npurge = \"at_once\"\n{more}",
        vapid.display()
    )
}

fn subscription(port: u16, path: &str) -> Value {
    json!({"endpoint": format!("http://127.0.0.1:{port}{path}"), "keys": {"p256dh": P256DH, "auth": AUTH}})
}

fn send(processor: &Processor, id: &str, payload: &Value) {
    let message = json!({"id": id, "payload": payload});
    assert_eq!(processor.post("/v1/pipelines/push/messages", &message.to_string()).status, 202, "{id}");
}

fn push(processor: &Processor, id: &str, subscription: &Value) {
    send(processor, id, &json!({"subscription": subscription, "payload": "hi"}));
}

fn letters(processor: &Processor) -> Vec<Value> {
    let listed = processor.get("/v1/pipelines/push/letters").json();
    listed["letters"].as_array().cloned().unwrap_or_default()
}

fn cli(processor: &Processor, args: &[&str]) -> Value {
    let args = [&["subscriptions"], args, &["--json"]].concat();
    let output = processor.cli(&args);
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{args:?}: {}", stderr(&output)))
}

fn attention(processor: &Processor) -> String {
    processor.get("/v1/pipelines/push").json()["attention"].to_string()
}

/// The ids and bodies that the owner's system received.
fn announced(owner: &PlainServer) -> Vec<(String, Value)> {
    let of = |seen: server::Seen| {
        let id = seen.headers["webhook-id"].to_str().unwrap().to_owned();
        (id, serde_json::from_slice(&seen.body).unwrap())
    };
    owner.seen().into_iter().map(of).collect()
}

/// Purges were once announced from memory: a kill before the call lost them.
#[test]
fn a_purge_is_announced_after_a_kill_with_the_same_id_and_only_until_it_was_accepted() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let status = Arc::new(AtomicU16::new(503));
    let answers = Arc::clone(&status);
    let owner = runtime.block_on(PlainServer::start(move |_| Reply::of(answers.load(Ordering::SeqCst), "")));
    let dir = tempfile::tempdir().unwrap();
    let on_purged = format!("on_purged = \"http://127.0.0.1:{}/purged\"\n", owner.port);
    let mut processor = Processor::start(dir.path(), &config(&key_file(&dir, "vapid.pem"), &on_purged));
    let given = subscription(server.port, "/wp/gone-0f3a77").to_string();
    for id in ["user-1/phone", "user-2/phone"] {
        cli(&processor, &["register", "push", id, &given]);
    }
    push(&processor, "m-1", &json!("user-1/phone"));
    wait_for("a first try", || !owner.seen().is_empty());
    let counts = cli(&processor, &["push"]);
    assert_eq!((&counts["unannounced"], &counts["purged"]), (&json!(1), &json!(1)));
    let metrics = processor.get("/metrics").body;
    assert!(metrics.contains("redrive_subscriptions_unannounced{pipeline=\"push\"} 1"), "{metrics}");
    processor.kill();
    let tried = announced(&owner);
    status.store(204, Ordering::SeqCst);
    processor.restart();
    wait_for("the announcement", || cli(&processor, &["push"])["unannounced"] == 0);
    let accepted = announced(&owner).split_off(tried.len());
    let ids: Vec<&str> = accepted.iter().map(|(_, body)| body["subscription_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["user-1/phone", "user-2/phone"], "one for each id");
    assert_eq!(tried[0].0, accepted[0].0, "a repeat has the same id, and can be told from news");
    assert_ne!(accepted[0].0, accepted[1].0);
    assert_eq!(accepted[0].1["id"], *accepted[0].0);
    processor.kill();
    processor.restart();
    // A later announcement shows that none is still due before it.
    push(&processor, "m-2", &subscription(server.port, "/wp/other-0f3a77"));
    wait_for("the next one", || announced(&owner).len() > tried.len() + 2);
    let last = announced(&owner).pop().unwrap().1;
    assert_eq!((&last["subscription_id"], announced(&owner).len()), (&Value::Null, tried.len() + 3));
    assert!(!processor.log().contains("0f3a77"));
}

#[test]
fn a_start_with_another_hash_key_is_refused_and_says_what_to_do() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("hash.key");
    std::fs::write(&key, "0123456789abcdef-the-first").unwrap();
    let hashed = format!("hash_key_file = \"{}\"\n", key.display());
    let mut processor = Processor::start(dir.path(), &config(&key_file(&dir, "vapid.pem"), &hashed));
    push(&processor, "m-1", &subscription(server.port, "/wp/gone"));
    wait_for("the purge", || cli(&processor, &["push"])["purged"] == 1);
    processor.kill();
    std::fs::write(&key, "0123456789abcdef-the-second").unwrap();
    let refused = redrive(dir.path()).arg("processor").output().unwrap();
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("were hashed with another key") && said.contains("restore the former"), "{said}");
    assert!(!said.contains("0123456789abcdef"), "{said}");
    std::fs::write(&key, "0123456789abcdef-the-first").unwrap();
    processor.restart();
    assert_eq!(cli(&processor, &["push"])["purged"], 1);
}

#[test]
fn damage_in_the_log_is_found_by_verify_shown_by_status_and_given_up_on_request() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let dir = tempfile::tempdir().unwrap();
    let mut processor = Processor::start(dir.path(), &config(&key_file(&dir, "vapid.pem"), ""));
    for name in ["one", "two"] {
        push(&processor, name, &subscription(server.port, &format!("/wp/{name}")));
    }
    wait_for("both purges", || cli(&processor, &["push"])["purged"] == 2);
    let data = dir.path().join("data");
    let journal = |args: &[&str]| redrive(dir.path()).arg("journal").arg(&data).args(args).output().unwrap();
    assert_eq!(journal(&["--verify"]).status.code(), Some(0));
    processor.kill();
    let log = data.join("push/subscriptions.log");
    let mut bytes = std::fs::read(&log).unwrap();
    let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    bytes[last + 20] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let found = journal(&["--verify"]);
    let said = stdout(&found);
    assert_eq!(found.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("subscriptions.log at offset {last} ")), "{said}");
    let shown: Value = serde_json::from_str(&stdout(&journal(&["--verify", "--json"]))).unwrap();
    assert_eq!(shown["stores"][0]["subscriptions"]["damage"][0]["offset"], last);
    processor.restart();
    assert!(
        attention(&processor).contains("1 damaged line in subscriptions.log"),
        "{}",
        attention(&processor)
    );
    assert!(stdout(&processor.cli(&["status", "push"])).contains("1 damaged line in subscriptions.log"));
    let held = journal(&["--pipeline", "push", "--accept-loss"]);
    assert_eq!(held.status.code(), Some(75), "not while it runs: {}", stderr(&held));
    processor.kill();
    let accepted = journal(&["--pipeline", "push", "--accept-loss"]);
    assert!(stdout(&accepted).contains("1 damaged lines of subscriptions.log"), "{}", stdout(&accepted));
    assert_eq!(journal(&["--verify"]).status.code(), Some(0));
    processor.restart();
    assert_eq!(attention(&processor), "[]");
}

#[test]
fn a_vapid_key_that_is_still_used_is_missed_at_the_start_in_status_and_by_each_message() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(201, "")));
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (key_file(&dir, "old.pem"), key_file(&dir, "new.pem"));
    let mut processor = Processor::start(dir.path(), &config(&old, ""));
    let given = subscription(server.port, "/wp/stored").to_string();
    let stored = cli(&processor, &["register", "push", "user-1/phone", &given]);
    let key = stored["key"].as_str().unwrap().to_owned();
    processor.kill();
    // Rotated as in the guide: no warning.
    let previous = format!("previous_vapid_key_files = [\"{}\"]\n", old.display());
    let mut processor = Processor::start(dir.path(), &config(&new, &previous));
    assert_eq!(attention(&processor), "[]");
    processor.kill();
    // Removed too early.
    let processor = Processor::start(dir.path(), &config(&new, ""));
    let log = processor.log();
    assert!(log.contains(&format!("key {key} is still used by 1 stored subscription")), "{log}");
    assert!(attention(&processor).contains("1 stored subscription was made with a VAPID key"));
    let keys = cli(&processor, &["keys", "push"]);
    assert_eq!(keys["keys"], json!([{"key": key, "subscriptions": 1, "configured": false}]));
    assert_eq!(processor.cli(&["subscriptions", "keys", "push"]).status.code(), Some(1));
    push(&processor, "m-1", &json!("user-1/phone"));
    wait_for("the letter", || letters(&processor).len() == 1);
    let letter = processor.get("/v1/pipelines/push/letters/m-1").json().to_string();
    assert!(letter.contains("the browser must subscribe again"), "{letter}");
    assert!(server.seen().is_empty(), "nothing is signed with another key");
}

#[test]
fn what_an_operator_pastes_as_a_reason_is_in_no_log_and_no_record() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(201, "")));
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &config(&key_file(&dir, "vapid.pem"), ""));
    let given = subscription(server.port, "/wp/stored").to_string();
    cli(&processor, &["register", "push", "user-1/phone", &given]);
    let reason = format!("bounces at https://push.example/wp/0f3a77 with {AUTH}, ticket OPS-7");
    let row = cli(&processor, &["flag", "push", "user-1/phone", "--reason", &reason]);
    assert_eq!(row["reason"], "bounces at [url] with [token], ticket OPS-7");
    wait_for("the line of the log", || processor.log().contains("bounces at [url]"));
    let actions = processor.get("/v1/actions").json().to_string();
    assert!(actions.contains("ticket OPS-7"), "{actions}");
    for text in [&processor.log(), &actions, &row.to_string()] {
        assert!(!text.contains("0f3a77") && !text.contains(AUTH), "{text}");
    }
}

#[test]
fn a_message_that_cannot_be_pushed_is_a_letter_with_the_hash_of_its_endpoint_and_what_is_wrong() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &config(&key_file(&dir, "vapid.pem"), ""));
    let given = subscription(server.port, "/wp/0f3a77");
    send(&processor, "sound", &json!({"subscription": given, "payload": "hi"}));
    wait_for("the purge", || cli(&processor, &["push"])["purged"] == 1);
    let hash =
        cli(&processor, &["list", "push"])["subscriptions"][0]["endpoint_hash"].as_str().unwrap().to_owned();
    for (id, payload, wrong) in [
        ("urgency", json!({"subscription": given, "urgency": "asap"}), "`urgency` is none of"),
        ("member", json!({"subscription": given, "urgancy": "high"}), "did you mean `urgency`?"),
        ("keys", json!({"subscription": {"endpoint": given["endpoint"], "keys": {}}}), "keys.p256dh"),
    ] {
        send(&processor, id, &payload);
        wait_for("the letter", || processor.get(&format!("/v1/pipelines/push/letters/{id}")).status == 200);
        let letter = processor.get(&format!("/v1/pipelines/push/letters/{id}")).json();
        let error = letter["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(wrong) && error.contains(&hash), "{id}: {letter}");
        assert_eq!(letter["reason"], "permanent", "{letter}");
    }
    assert!(!processor.log().contains("0f3a77"));
    assert_eq!(server.seen().len(), 1);
}
