//! The client commands against a real API on the embedded engine: ten dead letters.
//!
//! Stories 6 and 7 without the lines that need groups, edit, the canary or the breaker.

mod recorded;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use recorded::{Ran, RecordedApi, command, run};
use redrive::actions::Actions;
use redrive::replay::Replays;
use redrive::{Embedded, Failure, Message, Pipeline, Policy, Redrive};
use redrive_server::{Scope, Served, Server, ServerOptions, Service, Token};
use serde_json::{Value, json};
use tempfile::TempDir;

const SECRET: &str = "ops-secret-0123456789";

/// What the handler applied; serves as the witness.
#[derive(Debug, Default)]
struct Downstream {
    healed: AtomicBool,
    applied: Mutex<BTreeSet<String>>,
}

impl Downstream {
    /// Refuses o-30 to o-34, and always fails o-35 to o-39, until it is healed.
    fn handle(&self, message: &Message) -> Result<(), Failure> {
        let number: u64 = message.id().strip_prefix("o-").and_then(|n| n.parse().ok()).unwrap_or_default();
        if !self.healed.load(Ordering::SeqCst) {
            match number {
                30..=34 => return Err(Failure::permanent("422 card 4111111111111111 is not valid")),
                35.. => return Err(Failure::transient("503 Service Unavailable")),
                _ => {}
            }
        }
        self.applied.lock().unwrap().insert(message.id().to_owned());
        Ok(())
    }
}

/// A processor in this process: engine, pipeline and API, without the `processor` command.
struct Processor {
    address: SocketAddr,
    downstream: Arc<Downstream>,
    _dir: TempDir,
    _runtime: tokio::runtime::Runtime,
}

fn processor() -> Processor {
    let dir = tempfile::tempdir().unwrap();
    let downstream = Arc::new(Downstream::default());
    let handled = Arc::clone(&downstream);
    let redrive = Redrive::builder()
        .engine(Embedded::open(dir.path().join("data")).unwrap())
        .pipeline(
            Pipeline::new("orders")
                .policy(Policy::tiers(["20ms", "40ms"]).jitter("none"))
                .dedup(Duration::from_hours(24))
                .handler_fn(move |message| {
                    let handled = Arc::clone(&handled);
                    async move { handled.handle(&message) }
                }),
        )
        .build()
        .unwrap();
    let service = Service {
        pipelines: redrive.pipelines().map(Served::new).collect(),
        replays: Replays::open(Some(dir.path())).unwrap(),
        actions: Actions::open(Some(dir.path())).unwrap(),
    };
    let options = ServerOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tokens: vec![Token::new("ops", SECRET, Scope::ALL).unwrap()],
        ..ServerOptions::default()
    };
    let server = Server::bind(options, service).unwrap();
    let address = server.address();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.spawn(async move { server.run(std::future::pending::<()>()).await });
    let running = redrive.clone();
    runtime.spawn(async move { running.run_until(std::future::pending::<()>()).await });
    let orders = redrive.pipeline("orders").unwrap();
    let messages = (0..40).map(|i| {
        let payload = json!({"order_id": format!("o-{i}"), "card": "4111111111111111"}).to_string();
        Message::builder(format!("o-{i}"))
            .key("c-1")
            .header("authorization", "Bearer s3cret")
            .header("x-trace", format!("t-{i}"))
            .payload(payload)
            .build()
            .unwrap()
    });
    runtime.block_on(orders.ingest(messages)).unwrap();
    Processor { address, downstream, _dir: dir, _runtime: runtime }
}

impl Processor {
    fn redrive(&self, args: &[&str]) -> Ran {
        let mut command = command(&format!("http://{}", self.address), args);
        command.env("REDRIVE_TOKEN", SECRET);
        let ran = run(command);
        assert!(!format!("{ran:?}").contains(SECRET), "the token shows: {ran:?}");
        ran
    }

    /// Waits until `status` meets the condition.
    fn wait(&self, wish: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let status = self.redrive(&["status", "orders", "--json"]).exits(0).json();
            if wish(&status) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_mins(5), "it stays {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The downstream's ledger in the shape of `redrive downstream`.
    fn witness(&self) -> RecordedApi {
        let downstream = Arc::clone(&self.downstream);
        RecordedApi::new(move |asked| {
            if asked.line == "GET /stats" {
                return (200, json!({"duplicates": 0}));
            }
            (200, json!({"ids": *downstream.applied.lock().unwrap(), "next": null}))
        })
    }
}

#[test]
fn ten_dead_letters_are_understood_replayed_discarded_and_audited() {
    let processor = processor();
    processor.wait(|status| status["letters"]["open"] == 10 && status["succeeded"] == 30);

    let shown = processor.redrive(&["dlq", "inspect", "orders", "--filter", "reason:permanent"]).exits(0);
    assert!(shown.stdout.starts_with("LETTER "), "{}", shown.stdout);
    assert!(shown.stdout.ends_with("   5 shown\n"), "{}", shown.stdout);
    assert!(shown.stdout.contains("permanent  permanent  422 card"), "{}", shown.stdout);
    let filtered = ["dlq", "inspect", "orders", "--filter", "reason:permanent", "--json"];
    let filtered = processor.redrive(&filtered).exits(0).json();
    let letters = filtered["letters"].as_array().unwrap();
    let traces: BTreeSet<(&str, &str)> = letters
        .iter()
        .map(|letter| (letter["message"].as_str().unwrap(), letter["headers"]["x-trace"].as_str().unwrap()))
        .collect();
    let wanted = [("o-30", "t-30"), ("o-31", "t-31"), ("o-32", "t-32"), ("o-33", "t-33"), ("o-34", "t-34")];
    assert_eq!(traces, BTreeSet::from(wanted), "with their headers: {filtered}");
    let more = processor.redrive(&["dlq", "inspect", "orders", "--limit", "3"]).exits(0);
    assert!(more.stdout.ends_with("   3 shown, more: --limit 6\n"), "{}", more.stdout);
    processor
        .redrive(&["dlq", "inspect", "orders", "--filter", "reason:permanent colour:red"])
        .exits(2)
        .complains("column");

    let by_message = processor.redrive(&["dlq", "show", "orders", "o-35"]).exits(0);
    assert!(by_message.stdout.contains("message o-35   key c-1   attempts 3"), "{}", by_message.stdout);
    assert!(by_message.stdout.contains("reason   max_retries   class transient   state open   replays 0"));
    assert!(by_message.stdout.contains("headers  authorization=(hidden)"), "{}", by_message.stdout);
    let letter = by_message.stdout.split_whitespace().nth(1).unwrap().to_owned();
    assert!(letter.starts_with("orders/"), "{letter}");
    let by_letter = processor.redrive(&["dlq", "show", "orders", &letter]).exits(0);
    assert_eq!(by_letter.stdout, by_message.stdout);
    processor.redrive(&["dlq", "show", "orders", "o-1"]).exits(2);
    processor.redrive(&["dlq", "show", "order", "o-1"]).exits(2).complains("did you mean `orders`?");

    let planned = processor
        .redrive(&["dlq", "replay", "orders", "--filter", "reason:permanent", "--rate", "100/s", "--dry-run"])
        .exits(0);
    let would =
        "would replay 5 (frozen)   to orders (only this pipeline sees it)   at 100/s ± jitter ≈ 1 s\n";
    assert!(planned.stdout.starts_with(would), "{}", planned.stdout);
    // Nothing was repaired: they die again, and the command reports it.
    let again = processor.redrive(&["dlq", "replay", "orders", "--filter", "reason:permanent"]).exits(1);
    assert!(again.stdout.starts_with("replay r-1  5/5   succeeded 0   dead again 5   "), "{}", again.stdout);

    processor.redrive(&["dlq", "discard", "orders", "--ids", "o-39,o-38", "--reason", "ticket 881"]).exits(0);
    processor.redrive(&["dlq", "undo", "orders", "d-1"]).exits(0).prints("restored 2   (open again)\n");
    let again = processor.redrive(&["dlq", "undo", "orders", "d-1"]).exits(0);
    assert!(again.stdout.starts_with("restored 0   (undone already, at "), "{}", again.stdout);
    let gone =
        processor.redrive(&["dlq", "discard", "orders", "--ids", "o-39", "--reason", "ticket 881"]).exits(0);
    assert!(gone.stdout.starts_with("discarded 1   (kept as tombstones, undo"), "{}", gone.stdout);

    let export =
        processor.redrive(&["dlq", "export", "orders", "--state", "all", "--redact", "/card"]).exits(0);
    assert_eq!(export.stdout.lines().count(), 10);
    for secret in ["4111111111111111", "s3cret"] {
        assert!(!export.stdout.contains(secret), "{}", export.stdout);
    }

    processor.downstream.healed.store(true, Ordering::SeqCst);
    let healed = processor.redrive(&["dlq", "replay", "orders", "--all", "--rate", "200/s"]).exits(0);
    assert!(
        healed.stdout.starts_with("replay r-2  9/9   succeeded 9   dead again 0   "),
        "{}",
        healed.stdout
    );
    processor.redrive(&["dlq", "replay", "--resume", "r-2"]).exits(0);
    processor.wait(|status| status["letters"]["open"] == 0);
    let stats = processor.redrive(&["dlq", "stats", "orders", "--json"]).exits(0).json();
    assert_eq!((&stats["succeeded"], &stats["discarded"]), (&json!(9), &json!(1)));

    let witness = processor.witness();
    let audit = ["audit", "orders", "--applied", &witness.url(), "--ids", "o-0..o-39"];
    processor.redrive(&audit).exits(0).prints(
        "\
produced                      40   ids
  succeeded                   39   id found in applied
  dead                         1   open 0 · discarded 1 · of these also succeeded 0
  pending                      0
  missing                      0   ✓
repeated calls   0, all merged      duplicate effects   0
proof   by id against the downstream's ledger
",
    );
    processor.downstream.applied.lock().unwrap().remove("o-7");
    let missing = processor.redrive(&audit).exits(1);
    assert!(missing.stdout.contains("  missing                      1   ✗\n    o-7\n"), "{}", missing.stdout);

    let log = processor.redrive(&["audit", "orders", "--actions", "--json"]).exits(0);
    let log: Vec<Value> = log.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let did: Vec<&str> = log.iter().map(|action| action["action"].as_str().unwrap()).collect();
    assert_eq!(did, ["replay", "discard", "undo", "discard", "replay"]);
    assert!(log.iter().all(|action| action["actor"] == "ops"), "{log:?}");
}

#[test]
fn a_paused_pipeline_waits_and_a_reader_may_not_pause_it() {
    let processor = processor();
    processor.redrive(&["pause", "orders"]).exits(0);
    processor.wait(|status| status["paused"] == true);
    let status = processor.redrive(&["status", "orders"]).exits(0);
    assert!(status.stdout.starts_with("pipeline orders   PAUSED   ready "), "{}", status.stdout);
    processor.redrive(&["resume", "orders"]).exits(0);
    processor.wait(|status| status["paused"] == false && status["letters"]["open"] == 10);

    let url = format!("http://{}", processor.address);
    run(command(&url, &["pause", "orders"])).exits(2).complains("this needs a token");
    let mut wrong = command(&url, &["pause", "orders"]);
    wrong.env("REDRIVE_TOKEN", "not-a-token-of-this-server");
    run(wrong).exits(2).complains("not one of the processor's");
    // Reads need a token too once there is one.
    run(command(&url, &["status", "orders"])).exits(2).complains("this needs a token");
}
