//! Subscriptions on Kafka with the real binary: what one process of the group learns, a later one knows.
#![cfg(feature = "kafka")]

#[path = "../../redrive-sinks/tests/push/server.rs"]
#[allow(dead_code, reason = "the tests of the sinks use the rest")]
mod server;
mod world;

use serde_json::{Value, json};
use server::{PlainServer, Reply, key_file};
use tokio::runtime::Runtime;
use world::process::{Processor, redrive, stderr, stdout};
use world::{kafka, wait_for};

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

fn config(keys: &tempfile::TempDir, topic: &str, member: &str, hash_key: bool) -> String {
    std::fs::write(keys.path().join("hash.key"), "the key of the hashes").unwrap();
    let hash_key = if hash_key {
        format!("hash_key_file = \"{}\"\n", keys.path().join("hash.key").display())
    } else {
        String::new()
    };
    format!(
        "[engine]\n{}\ndir = \"@DIR@\"\n[server]\nlisten = \"@LISTEN@\"\n[[pipeline]]\nname = \"{topic}\"\n\
         id = \"json:/id\"\nprofile = \"push\"\n[pipeline.sink.webpush]\nvapid_key_file = \"{}\"\n\
         subject = \"mailto:ops@example.com\"\nallow_private_addresses = true\npurge = \"at_once\"\n{hash_key}",
        kafka::engine(&format!("{topic}-delivery"), member),
        key_file(keys, "vapid.pem").display()
    )
}

fn push(topic: &str, id: &str, port: u16) {
    let subscription = json!({
        "endpoint": format!("http://127.0.0.1:{port}/wp/gone"), "keys": {"p256dh": P256DH, "auth": AUTH}
    });
    let payload = json!({"id": id, "subscription": subscription, "payload": "hi"}).to_string();
    kafka::produce(topic, [(id.to_owned(), payload)]);
}

#[test]
fn what_one_process_purged_the_next_one_does_not_call() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let keys = tempfile::tempdir().unwrap();
    let topic = kafka::name("push");
    kafka::create(&topic, 1);
    let open = |processor: &Processor| {
        let shown = processor.get(&format!("/v1/pipelines/{topic}")).json();
        shown["letters"]["open"].as_u64().unwrap_or(0)
    };
    let dir = tempfile::tempdir().unwrap();
    let mut first = Processor::start(dir.path(), &config(&keys, &topic, "redrive-0", true));
    push(&topic, "m-1", server.port);
    wait_for("a letter", || open(&first) == 1);
    first.signal("TERM");
    first.wait();
    // Another machine: without the first one's directory.
    let dir = tempfile::tempdir().unwrap();
    let second = Processor::start(dir.path(), &config(&keys, &topic, "redrive-1", true));
    push(&topic, "m-2", server.port);
    wait_for("a second letter", || open(&second) == 2);
    assert_eq!(server.seen().len(), 1, "one request for two messages");
    let counts = second.cli(&["subscriptions", &topic, "--json"]);
    let counts: Value = serde_json::from_str(&stdout(&counts)).unwrap();
    assert_eq!(counts["purged"], 1, "{counts}");
}

/// Once, each member announced its own purges from memory: if it died, none did.
#[test]
fn a_purge_of_a_member_that_was_killed_is_announced_by_another_and_by_that_one_alone() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let status = Arc::new(AtomicU16::new(503));
    let answers = Arc::clone(&status);
    let owner = runtime.block_on(PlainServer::start(move |_| Reply::of(answers.load(Ordering::SeqCst), "")));
    let keys = tempfile::tempdir().unwrap();
    let topic = kafka::name("push");
    kafka::create(&topic, 2);
    let config = |member: &str| {
        format!(
            "{}on_purged = \"http://127.0.0.1:{}/purged\"\n",
            config(&keys, &topic, member, true),
            owner.port
        )
    };
    let counts = |processor: &Processor| {
        let counts = processor.cli(&["subscriptions", &topic, "--json"]);
        serde_json::from_str::<Value>(&stdout(&counts)).unwrap_or_default()
    };
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut first = Processor::start(here.path(), &config("redrive-0"));
    push(&topic, "m-1", server.port);
    wait_for("the purge, and a first try", || counts(&first)["unannounced"] == 1 && !owner.seen().is_empty());
    let id = owner.seen()[0].headers["webhook-id"].to_str().unwrap().to_owned();
    first.kill();
    let tried = owner.seen().len();
    status.store(204, Ordering::SeqCst);
    let second = Processor::start(there.path(), &config("redrive-1"));
    wait_for("the announcement", || counts(&second)["unannounced"] == 0);
    let accepted = owner.seen().split_off(tried);
    assert_eq!(accepted.len(), 1);
    assert_eq!(accepted[0].headers["webhook-id"].to_str().unwrap(), id, "the same purge has the same id");
    // The first member is back, and reads that there is nothing left to announce.
    first.restart();
    wait_for("the same knowledge", || counts(&first)["unannounced"] == 0 && counts(&first)["purged"] == 1);
    assert_eq!(owner.seen().len(), tried + 1);
}

#[test]
fn a_member_with_another_hash_key_is_refused() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let keys = tempfile::tempdir().unwrap();
    let topic = kafka::name("push");
    kafka::create(&topic, 1);
    let dir = tempfile::tempdir().unwrap();
    let mut first = Processor::start(dir.path(), &config(&keys, &topic, "redrive-0", true));
    push(&topic, "m-1", server.port);
    wait_for("the request", || server.seen().len() == 1);
    first.signal("TERM");
    first.wait();
    std::fs::write(keys.path().join("hash.key"), "another key of the hashes").unwrap();
    let refused = redrive(dir.path()).arg("processor").output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("were hashed with another key"), "{}", stderr(&refused));
}

#[test]
fn members_that_could_not_share_hashes_are_refused() {
    let keys = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redrive.toml");
    let text = config(&keys, "push", "redrive-0", false)
        .replace("@DIR@", "store")
        .replace("@LISTEN@", "127.0.0.1:0");
    std::fs::write(&path, text).unwrap();
    let checked = redrive(dir.path()).arg("--config").arg(&path).arg("check").output().unwrap();
    let said = stderr(&checked) + &stdout(&checked);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(said.contains("`sink.webpush.hash_key_file` is missing"), "{said}");
}
