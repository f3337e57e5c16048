//! Story 5: the downstream is down for a while. Nothing is sent, nothing is dead, and delivery resumes in an orderly
//! way.

mod world;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use world::outage::Scene;
use world::process::{Processor, stdout};
use world::receiver::{OK, Receiver, UNAVAILABLE};
use world::wait_for;

fn scene() -> Scene<'static> {
    let source = "name = \"orders\"".to_owned();
    Scene { pipeline: "orders", engine: String::new(), source, bring: &ingest }
}

fn ingest(processor: &Processor, ids: std::ops::Range<usize>) {
    let lines: Vec<String> = ids.map(|id| format!("{{\"id\":\"o-{id}\",\"payload\":{id}}}\n")).collect();
    let lines = lines.concat();
    let answer = processor.post_as("/v1/pipelines/orders/messages", "application/x-ndjson", &lines);
    assert_eq!(answer.status, 202, "{}", answer.body);
}

fn pipeline(processor: &Processor) -> serde_json::Value {
    scene().shown(processor)
}

#[test]
fn an_outage_costs_few_calls_and_no_message_also_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    scene().an_outage_costs_few_calls_and_no_message(dir.path(), |_| 0);
}

/// Waiting ends at the deadline.
#[test]
fn what_passes_its_deadline_while_it_is_held_is_not_dead_for_the_outage() {
    let receiver = Receiver::start(|_| UNAVAILABLE);
    let dir = tempfile::tempdir().unwrap();
    let config = scene().config(&receiver.url()).replace("concurrency =", "ttl = \"3s\"\nconcurrency =");
    let processor = Processor::start(dir.path(), &config);
    ingest(&processor, 0..100);
    wait_for("the breaker to open", || pipeline(&processor)["breaker"] != "closed");
    let dead = |reason: &str| {
        let labels = format!(",reason=\"{reason}\"");
        scene().metric(&processor, "redrive_dead_letters_total", &labels).parse::<u64>().unwrap()
    };
    wait_for("messages to expire", || dead("ttl_exceeded") > 0);
    assert_eq!(dead("max_retries"), 0);
    // Letters appear shortly after their count.
    wait_for("letters that say for how long they were held", || {
        let letters = processor.get("/v1/pipelines/orders/letters?filter=reason:ttl_exceeded").json();
        letters["letters"].as_array().unwrap().iter().any(|letter| letter["held_ms"].as_u64() > Some(0))
    });
}

/// The sink never comes back. Messages that were never sent end too, and their letters give the reason.
#[test]
fn what_is_held_for_longer_than_hold_max_is_dead_for_that_and_not_for_exhaustion() {
    let receiver = Receiver::start(|_| UNAVAILABLE);
    let dir = tempfile::tempdir().unwrap();
    let config =
        scene().config(&receiver.url()).replace("concurrency =", "hold_max = \"10s\"\nconcurrency =");
    let processor = Processor::start(dir.path(), &config);
    ingest(&processor, 0..200);
    wait_for("all to end", || pipeline(&processor)["letters"]["open"].as_u64() == Some(200));
    let letters = processor.get("/v1/pipelines/orders/letters?filter=reason:hold_expired&limit=500").json();
    let letters = letters["letters"].as_array().unwrap();
    let unsent = letters.iter().filter(|letter| letter["attempts"] == 0);
    assert!(unsent.count() > 100, "{letters:?}");
    assert!(letters.iter().all(|letter| letter["held_ms"].as_u64() > Some(0)), "{letters:?}");
    let exhausted = processor.get("/v1/pipelines/orders/letters?filter=reason:max_retries").json();
    assert_eq!(exhausted["letters"].as_array().map(Vec::len), Some(0), "{exhausted}");
}

/// A receiver that answers its first call with 429 and this header, and the times of all calls.
fn busy_at_first(retry_after: &'static str) -> (Receiver, Arc<Mutex<Vec<Instant>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let called = Arc::clone(&calls);
    let receiver = Receiver::start(move |_| {
        let mut called = called.lock().unwrap();
        called.push(Instant::now());
        if called.len() == 1 { ("429 Too Many Requests", retry_after) } else { OK }
    });
    (receiver, calls)
}

/// One URL, one 429: no other message is sent to it meanwhile, and the status says so.
#[test]
fn a_retry_after_holds_for_everything_that_goes_to_the_url() {
    let (receiver, calls) = busy_at_first("retry-after: 3600\r\n");
    let dir = tempfile::tempdir().unwrap();
    let config = scene().config(&receiver.url()).replace("concurrency = 16", "concurrency = 1");
    let processor = Processor::start(dir.path(), &config);
    ingest(&processor, 0..50);
    wait_for("it to wait", || pipeline(&processor)["health"]["waits_until"].is_string());
    let status = stdout(&processor.cli(&["status", "orders"]));
    assert!(status.contains("ASKED TO WAIT until "), "{status}");
    assert_eq!(calls.lock().unwrap().len(), 1, "49 others wait as well");
    assert_eq!(pipeline(&processor)["dead"], 0);
}

/// After the wait all of them are delivered, and none before.
#[test]
fn after_a_retry_after_everything_is_delivered_and_nothing_before() {
    let (receiver, calls) = busy_at_first("retry-after: 2\r\n");
    let dir = tempfile::tempdir().unwrap();
    let config = scene().config(&receiver.url()).replace("concurrency = 16", "concurrency = 1");
    let processor = Processor::start(dir.path(), &config);
    ingest(&processor, 0..50);
    wait_for("all to be delivered", || pipeline(&processor)["succeeded"].as_u64() == Some(50));
    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), 51);
    // Measured at the receiver: from the answer with the Retry-After to the next call.
    let waited = calls[1].duration_since(calls[0]);
    assert!(waited >= Duration::from_secs(2), "the next call came after {waited:?}");
}

/// One answer asks for a day. The status shows the end of the wait and the reason, and an operator who knows better can
/// end it.
#[test]
fn a_retry_after_of_a_day_is_explained_and_an_operator_lifts_it() {
    let busy = Arc::new(AtomicBool::new(true));
    let is_busy = Arc::clone(&busy);
    let receiver = Receiver::start(move |_| {
        if is_busy.swap(false, SeqCst) { ("429 Too Many Requests", "retry-after: 86400\r\n") } else { OK }
    });
    let dir = tempfile::tempdir().unwrap();
    let config = scene().config(&receiver.url()).replace("concurrency = 16", "concurrency = 1");
    let processor = Processor::start(dir.path(), &config);
    ingest(&processor, 0..50);
    wait_for("it to wait", || pipeline(&processor)["health"]["waits_until"].is_string());
    let status = stdout(&processor.cli(&["status", "orders"]));
    let today = &pipeline(&processor)["health"]["waits_until"].as_str().unwrap()[..10].to_owned();
    assert!(status.contains(&format!("ASKED TO WAIT until {today} ")) && status.contains("Z ("), "{status}");
    let cause = "with 429 and Retry-After 24h; others wait for 5m of it (retry_after_shared_max)";
    assert!(status.contains("the downstream answered o-0 ") && status.contains(cause), "{status}");
    assert!(status.contains("`redrive resume orders --now` lifts it"), "{status}");
    assert_eq!(receiver.requests().len(), 1);
    wait_for("the log to say so", || processor.log().contains(cause));

    let resumed = processor.cli(&["resume", "orders", "--now"]);
    assert!(resumed.status.success(), "{}", world::process::stderr(&resumed));
    assert!(!stdout(&resumed).contains("ASKED TO WAIT"), "{}", stdout(&resumed));
    wait_for("the others", || pipeline(&processor)["succeeded"].as_u64() == Some(49));
    let actions = processor.get("/v1/actions").json().to_string();
    assert!(actions.contains("Retry-After lifted") && actions.contains("\"resume\""), "{actions}");
    assert_eq!(pipeline(&processor)["pending"]["delayed"], 1, "the one that was told still waits");
}

/// A deploy that refuses everything: the guard pauses the pipeline before the queue is empty, a restart does not undo
/// it, and an operator may let the flood pass.
#[test]
fn a_flood_of_dead_letters_pauses_the_pipeline_until_somebody_has_looked() {
    let receiver = Receiver::start(|_| ("400 Bad Request", ""));
    let dir = tempfile::tempdir().unwrap();
    let mut processor = Processor::start(dir.path(), &scene().config(&receiver.url()));
    ingest(&processor, 0..2_000);
    wait_for("the guard", || pipeline(&processor)["paused"] == true);
    // The pause is shown at once, the other figures every 50 ms.
    let open = |shown: &serde_json::Value| shown["letters"]["open"].as_u64().unwrap();
    wait_for("what was in flight", || {
        let shown = pipeline(&processor);
        shown["pending"]["in_flight"] == 0 && open(&shown) > 0
    });
    let dead = open(&pipeline(&processor));
    assert!((100..1_000).contains(&dead), "{dead} dead letters before it was paused");
    let status = stdout(&processor.cli(&["status", "orders"]));
    assert!(status.contains("PAUSED") && status.contains("paused by the dead-letter guard: "), "{status}");
    wait_for("it to be written down", || {
        processor.get("/v1/actions").json().to_string().contains("\"guard\"")
    });

    processor.kill();
    processor.restart();
    assert_eq!(pipeline(&processor)["paused"], true, "a restart does not take it back");
    let resumed = processor.cli(&["resume", "orders", "--dead-letter-anyway"]);
    assert!(resumed.status.success(), "{}", world::process::stderr(&resumed));
    wait_for("all to be dead", || pipeline(&processor)["letters"]["open"].as_u64() == Some(2_000));
    assert_eq!(pipeline(&processor)["paused"], false);
}
