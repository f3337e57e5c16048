//! Story 7, the compliance question: every order is accounted for by an independent witness, and all actions are
//! recorded with their actors.
//!
//! `--since` and `--until` of an audit need a source that can be reread: `story_07_kafka.rs`; the line
//! `range lost to retention` is in `story_03_kafka.rs`.

mod world;

use std::time::Duration;

use redrive::{
    BreakerSettings, Clock as _, Embedded, Failure, GuardSettings, Message, Pipeline, Policy, Redrive, Time,
    VirtualClock, WallClock,
};
use serde_json::{Value, json};
use world::postgres::Schema;
use world::process::{Processor, TOKEN, redrive, stderr, stdout};
use world::stub::Stub;
use world::{http, wait_for};

const OPS: &str = "ops-token-9876543210";

/// Two people with separate tokens.
fn config(url: &str) -> String {
    format!(
        r#"
[engine]
kind = "embedded"
dir  = "@DIR@"
[server]
listen = "@LISTEN@"
[[server.token]]
name = "ops@example.com"
scopes = ["read", "replay", "discard", "admin"]
secret_file = "ops.token"
[[server.token]]
name = "shop"
scopes = ["read", "ingest", "replay", "discard", "admin"]
secret_file = "shop.token"
[[pipeline]]
name   = "orders"
tiers  = ["200ms", "400ms"]
jitter = "none"
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

fn start(dir: &std::path::Path, stub: &Stub) -> Processor {
    start_with(dir, &config(&stub.url))
}

fn start_with(dir: &std::path::Path, config: &str) -> Processor {
    std::fs::write(dir.join("ops.token"), OPS).unwrap();
    std::fs::write(dir.join("shop.token"), TOKEN).unwrap();
    Processor::start(dir, config)
}

const PRODUCED: u64 = 400;

fn produce(dir: &std::path::Path, processor: &Processor) {
    let produced = redrive(dir)
        .args(["producer", "--target", &processor.url("/v1/pipelines/orders/messages")])
        .args(["--rate", "400", "--count", &PRODUCED.to_string(), "--poison-rate", "5%", "--seed", "7"])
        .args(["--transient-rate", "20%", "--ids-file", "ids.txt", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert!(produced.status.success(), "{}", stderr(&produced));
    settled(processor);
}

fn settled(processor: &Processor) {
    wait_for("everything to come to its end", || {
        let pending = &processor.get("/v1/pipelines/orders").json()["pending"];
        ["ready", "delayed", "held", "key_wait", "in_flight"].iter().all(|state| pending[*state] == 0)
    });
}

/// Runs a command as `ops@example.com`.
fn ops(processor: &Processor, args: &[&str]) -> String {
    let ran = processor.cli(&[&["--token-file", "ops.token"], args].concat());
    assert!(ran.status.success(), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

/// Sends a request as `shop`, over HTTP.
fn shop(processor: &Processor, path: &str, body: &Value) -> Value {
    let answer = processor.post(path, &body.to_string());
    assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
    answer.json()
}

#[test]
fn the_books_of_postgres_account_for_every_order_and_a_missing_row_is_named() {
    let schema = Schema::new("story7");
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &["--postgres", &schema.url]);
    let processor = start(dir.path(), &stub);
    produce(dir.path(), &processor);

    let args = ["audit", "orders", "--applied", &schema.url, "--ids-file", "ids.txt", "--effects", "effects"];
    let good = processor.cli(&args);
    let text = stdout(&good);
    assert_eq!(good.status.code(), Some(0), "{text}{}", stderr(&good));
    for line in [
        "produced                     400   ids\n",
        "  pending                      0\n",
        "  missing                      0   ✓\n",
        "duplicate effects   0   (rows of effects)\n",
        "proof   by id against postgres\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let report: Value =
        serde_json::from_str(&stdout(&processor.cli(&[&args[..], &["--json"]].concat()))).unwrap();
    let (succeeded, dead) =
        (report["succeeded"].as_u64().unwrap(), report["dead"]["total"].as_u64().unwrap());
    assert_eq!(succeeded + dead, PRODUCED, "{report}");
    assert!(dead > 0, "there was poison: {report}");
    let rows = schema.column("SELECT id FROM applied ORDER BY id");
    assert_eq!(rows.len() as u64, succeeded, "the books have as many rows as there are successes");

    let lost = rows[rows.len() / 2].clone();
    schema.execute(&format!("DELETE FROM applied WHERE id = '{lost}'"));
    let bad = processor.cli(&args);
    let text = stdout(&bad);
    assert_eq!(bad.status.code(), Some(1), "{text}{}", stderr(&bad));
    assert!(text.contains(&format!("  missing                      1   ✗\n    {lost}\n")), "{text}");
}

#[test]
fn the_stub_itself_is_a_witness_too() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &["--ledger", "applied.log"]);
    let processor = start(dir.path(), &stub);
    produce(dir.path(), &processor);
    let audit = processor.cli(&["audit", "orders", "--applied", &stub.url, "--ids-file", "ids.txt"]);
    assert_eq!(audit.status.code(), Some(0), "{}{}", stdout(&audit), stderr(&audit));
    assert!(
        stdout(&audit).ends_with("proof   by id against the downstream's ledger\n"),
        "{}",
        stdout(&audit)
    );

    // A stub without any memory does not know the orders that succeeded.
    let empty = Stub::start(dir.path(), &[]);
    let audit =
        processor.cli(&["audit", "orders", "--applied", &empty.url, "--ids-file", "ids.txt", "--json"]);
    assert_eq!(audit.status.code(), Some(1), "{}{}", stdout(&audit), stderr(&audit));
    let report: Value = serde_json::from_str(&stdout(&audit)).unwrap();
    assert_eq!(report["missing"].as_u64(), stub.stats()["ids"].as_u64(), "{report} {}", stub.stats());
}

#[test]
fn each_change_is_kept_once_with_who_made_it() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = start(dir.path(), &stub);
    let line = |n| format!("{{\"id\":\"bad-{n}\",\"payload\":{{\"amount\":-1}}}}\n");
    let lines = [0, 1, 2, 3, 4, 5].map(line).concat();
    let answer = processor.post_as("/v1/pipelines/orders/messages", "application/x-ndjson", &lines);
    assert_eq!(answer.status, 202, "{answer:?}");
    settled(&processor);

    // On the command line, as `ops`.
    ops(&processor, &["pause", "orders"]);
    // Pausing a paused pipeline is not a change.
    ops(&processor, &["pause", "orders"]);
    ops(&processor, &["resume", "orders"]);
    ops(&processor, &["dlq", "discard", "orders", "--all", "--reason", "only looking", "--dry-run"]);
    ops(&processor, &["dlq", "replay", "orders", "--all", "--dry-run"]);
    ops(
        &processor,
        &["dlq", "discard", "orders", "--ids", "bad-0,bad-1", "--reason", "customers deleted, 881"],
    );
    ops(&processor, &["dlq", "undo", "orders", "d-1"]);
    let slow = ops(&processor, &["dlq", "replay", "orders", "--all", "--rate", "1/h", "--detach", "--json"]);
    let job: Value = serde_json::from_str(&slow).unwrap();
    let job = job["id"].as_str().unwrap();
    ops(&processor, &["dlq", "replay", "--abort", job]);

    // Over HTTP, as `shop`; the page in a browser sends the same requests.
    shop(&processor, "/v1/pipelines/orders/pause", &json!({}));
    shop(&processor, "/v1/pipelines/orders/resume", &json!({}));
    let discard = json!({ "ids": ["bad-2"], "reason": "test order" });
    shop(&processor, "/v1/pipelines/orders/letters/discard", &discard);
    shop(&processor, "/v1/pipelines/orders/letters/undo", &json!({ "id": "d-2" }));
    // The second letter is due in 1,000 s, so the job is still running when it is paused.
    let two = json!({ "pipeline": "orders", "ids": ["bad-4", "bad-5"], "rate": 0.001 });
    let second = shop(&processor, "/v1/replays", &two);
    let second = second["id"].as_str().unwrap();
    shop(&processor, &format!("/v1/replays/{second}/pause"), &json!({}));
    shop(&processor, &format!("/v1/replays/{second}/resume"), &json!({}));
    // A refused request is not recorded as a change.
    let refused = http::send("POST", &processor.url("/v1/pipelines/orders/pause"), &[], "{}");
    assert_eq!(refused.status, 401, "{refused:?}");

    let text = ops(&processor, &["audit", "orders", "--actions", "--json"]);
    let actions: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<(&str, &str, Option<&str>, u64)> = actions
        .iter()
        .map(|action| {
            assert!(action["at"].as_str().unwrap().ends_with('Z'), "{action}");
            let letters = action["letters"].as_u64().unwrap();
            let text = |name: &str| action[name].as_str();
            (text("actor").unwrap(), text("action").unwrap(), text("id"), letters)
        })
        .collect();
    let (ops_name, shop_name) = ("ops@example.com", "shop");
    assert_eq!(
        seen,
        [
            (ops_name, "pause", None, 0),
            (ops_name, "resume", None, 0),
            (ops_name, "discard", Some("d-1"), 2),
            (ops_name, "undo", Some("d-1"), 2),
            (ops_name, "replay", Some(job), 6),
            (ops_name, "replay_abort", Some(job), 6),
            (shop_name, "pause", None, 0),
            (shop_name, "resume", None, 0),
            (shop_name, "discard", Some("d-2"), 1),
            (shop_name, "undo", Some("d-2"), 1),
            (shop_name, "replay", Some(second), 2),
            (shop_name, "replay_pause", Some(second), 2),
            (shop_name, "replay_resume", Some(second), 2),
        ],
        "{text}"
    );
    assert_eq!(actions[2]["note"], "customers deleted, 881");
    assert!(!text.contains(OPS) && !text.contains(TOKEN), "a secret is in the log of actions: {text}");
}

#[test]
fn an_export_holds_neither_what_was_redacted_nor_an_authorization() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = start(dir.path(), &stub);
    for n in 0..3 {
        let message = json!({
            "id": format!("bad-{n}"),
            "headers": { "Authorization": "Bearer customer-s3cret", "x-trace": "t-1", "x-user": "eve@example.com" },
            "payload": { "amount": -1, "card": 4_111_111_111_111_111_u64, "email": "eve@example.com", "note": "for eve@example.com" },
        });
        shop(&processor, "/v1/pipelines/orders/messages", &message);
    }
    // A message that was just answered may not be pending yet, so wait for the letters themselves.
    wait_for("three letters", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == 3);
    ops(&processor, &["dlq", "discard", "orders", "--all", "--reason", "GDPR ticket 881"]);
    let text =
        ops(&processor, &["dlq", "export", "orders", "--state", "discarded", "--redact", "/card,/email"]);
    assert_eq!(text.lines().count(), 3, "{text}");
    for secret in ["4111111111111111", "eve@example.com", "customer-s3cret"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(!text.to_lowercase().contains("authorization"), "{text}");
    let letter: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&letter["message"], &letter["state"]), (&json!("bad-0"), &json!("discarded")));
    assert_eq!(letter["headers"]["x-trace"], "t-1", "what is no secret stays: {letter}");
    let payload: Value = serde_json::from_str(letter["payload"]["utf8"].as_str().unwrap()).unwrap();
    assert_eq!(payload["card"], "[redacted]");

    // Without redaction everything but the header is exported; this proves that the test above can fail.
    let whole = ops(&processor, &["dlq", "export", "orders", "--state", "discarded"]);
    assert!(whole.contains("4111111111111111") && whole.contains("eve@example.com"), "{whole}");
    assert!(!whole.to_lowercase().contains("authorization"), "{whole}");
}

/// Creates a store with letters that died two days ago.
fn with_old_letters(dir: &std::path::Path, count: u64) {
    let two_days_ago = WallClock.now().as_millis() - 48 * 3_600_000;
    let pipeline = Pipeline::new("orders")
        .policy(Policy::tiers(["1h"]))
        .guard(GuardSettings::off())
        .breaker(BreakerSettings::off())
        .handler_fn(|_: Message| async { Err(Failure::permanent("422 no")) });
    let redrive = Redrive::builder()
        .engine(Embedded::open(dir).unwrap())
        .clock(VirtualClock::starting_at(Time::from_millis(two_days_ago)))
        .pipeline(pipeline)
        .build()
        .unwrap();
    let orders = redrive.pipeline("orders").unwrap();
    let until = async {
        let messages = (0..count).map(|n| Message::builder(format!("o-{n}")).build().unwrap());
        orders.ingest(messages).await.unwrap();
        while orders.counts().await.unwrap().letters_open < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::runtime::Runtime::new().unwrap().block_on(redrive.run_until(until)).unwrap();
}

#[test]
fn letters_that_died_too_long_ago_are_discarded_counted_and_recorded() {
    let dir = tempfile::tempdir().unwrap();
    with_old_letters(&dir.path().join("data"), 3);
    let stub = Stub::start(dir.path(), &[]);
    let keeping = config(&stub.url).replace("jitter =", "letter_retention = \"1d\"\njitter =");
    let processor = start_with(dir.path(), &keeping);
    let expired = "redrive_letters_expired_total{pipeline=\"orders\"} 3";
    wait_for("the old letters to be counted", || {
        processor.get("/metrics").body.lines().any(|line| line == expired)
    });
    wait_for("the letters to be discarded", || {
        let letters = &processor.get("/v1/pipelines/orders").json()["letters"];
        letters["open"] == 0 && letters["discarded"] == 3
    });
    let text = ops(&processor, &["audit", "orders", "--actions", "--json"]);
    let actions: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(actions.len(), 1, "{text}");
    let seen = (&actions[0]["action"], &actions[0]["actor"], &actions[0]["letters"]);
    assert_eq!(seen, (&json!("discard"), &json!("retention"), &json!(3)), "{text}");
}
