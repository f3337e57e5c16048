//! Story 5: the downstream is gone for a while. Nothing is sent, nothing is dead, and it comes back in good order.

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use world::process::{Processor, stdout};
use world::receiver::{OK, Receiver, UNAVAILABLE};
use world::wait_for;

const MIN: usize = 20;
const CONCURRENCY: usize = 16;
const PROBES: usize = 5;

fn config(url: &str) -> String {
    format!(
        r#"
[engine]
dir = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name = "orders"
tiers = ["100ms", "200ms", "400ms"]
concurrency = {CONCURRENCY}
[pipeline.breaker]
cooldown = "1s"
cooldown_max = "2s"
probes = {PROBES}
[pipeline.breaker.fast]
window = "10s"
min = {MIN}
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

fn ingest(processor: &Processor, ids: std::ops::Range<usize>) {
    let lines: Vec<String> = ids.map(|id| format!("{{\"id\":\"o-{id}\",\"payload\":{id}}}\n")).collect();
    let lines = lines.concat();
    let answer = processor.post_as("/v1/pipelines/orders/messages", "application/x-ndjson", &lines);
    assert_eq!(answer.status, 202, "{}", answer.body);
}

fn pipeline(processor: &Processor) -> serde_json::Value {
    processor.get("/v1/pipelines/orders").json()
}

fn metric(processor: &Processor, line: &str) -> String {
    let metrics = processor.get("/metrics").body;
    metrics.lines().find_map(|found| found.strip_prefix(line)).unwrap_or_default().trim().to_owned()
}

#[test]
fn an_outage_costs_few_calls_and_no_message_also_over_a_restart() {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let receiver = Receiver::start(move |_| if is_down.load(SeqCst) { UNAVAILABLE } else { OK });
    let dir = tempfile::tempdir().unwrap();
    let mut processor = Processor::start(dir.path(), &config(&receiver.url()));
    ingest(&processor, 0..400);
    wait_for("the breaker to open", || pipeline(&processor)["breaker"] != "closed");

    // What was on its way when it opened comes back failed, and probes are made; nothing else.
    wait_for("three rounds of probes", || pipeline(&processor)["health"]["rounds"].as_u64() >= Some(3));
    let shown = pipeline(&processor);
    let rounds = shown["health"]["rounds"].as_u64().unwrap() as usize;
    let calls = receiver.requests().len();
    assert!(calls <= MIN + 2 * CONCURRENCY + (rounds + 1) * PROBES, "{calls} calls in {rounds} rounds");
    assert_eq!(shown["dead"], 0, "{shown}");
    let reason = shown["health"]["reason"].as_str().unwrap();
    assert!(reason.contains(" first attempts failed within 10s"), "{reason}");
    assert!(shown["pending"]["held"].as_u64() > Some(300), "{shown}");
    let status = stdout(&processor.cli(&["status", "orders"]));
    assert!(status.contains("breaker OPEN since") || status.contains("breaker HALF OPEN since"), "{status}");
    assert!(status.contains("nothing is dead-lettered for it"), "{status}");
    // One of them may be under way.
    assert!(status.contains(" probes, ") && status.contains(" failed\n"), "{status}");
    assert!(status.contains("  ready 0   delayed 0   held "), "{status}");
    assert!(status.contains("dead +0 since open"), "{status}");
    assert!(status.contains("  if it closed now: ramp 5 → 16 permits in ~"), "{status}");
    let incident = &shown["health"]["incident"];
    assert!(
        incident["until"].is_null() && incident["failed_attempts"].as_u64() <= Some(calls as u64),
        "{shown}"
    );
    let states = ["closed", "open", "half_open"].map(|state| {
        metric(&processor, &format!("redrive_breaker_state{{pipeline=\"orders\",state=\"{state}\"}}"))
    });
    assert_eq!(states[0], "0", "{states:?}");
    assert!(processor.log().contains("▲ breaker open: "), "{}", processor.log());

    // Killed and started again while it is down: it is open from the start, and only probes are sent.
    let since = shown["health"]["since"].clone();
    processor.kill();
    let before = receiver.requests().len();
    processor.restart();
    ingest(&processor, 400..460);
    let shown = pipeline(&processor);
    assert_ne!(shown["breaker"], "closed", "{shown}");
    assert_eq!(shown["health"]["since"], since, "{shown}");
    let rounds = shown["health"]["rounds"].as_u64().unwrap();
    wait_for("two more rounds", || pipeline(&processor)["health"]["rounds"].as_u64() >= Some(rounds + 2));
    let rounds = pipeline(&processor)["health"]["rounds"].as_u64().unwrap() - rounds;
    let calls = receiver.requests().len() - before;
    assert!(calls <= (rounds as usize + 2) * PROBES, "{calls} calls in {rounds} rounds after the restart");

    down.store(false, SeqCst);
    wait_for("all to be delivered", || pipeline(&processor)["succeeded"].as_u64() == Some(460));
    let shown = pipeline(&processor);
    assert_eq!((&shown["breaker"], &shown["dead"]), (&"closed".into(), &0.into()), "{shown}");
    assert_eq!(shown["letters"]["open"], 0, "{shown}");
    let history = shown["health"]["history"].to_string();
    assert!(history.contains("▼ breaker closed"), "{history}");
    let incident = &shown["health"]["incident"];
    assert_eq!(
        (&incident["dead_for_the_outage"], &incident["expired"]),
        (&0.into(), &0.into()),
        "{incident}"
    );
    assert_eq!(incident["from"], since, "{incident}");
    assert!(incident["peak_of_limit"].as_f64() <= Some(1.0), "{incident}");
    assert!(incident["peak_per_second"].as_u64() > Some(0), "{incident}");
    let status = stdout(&processor.cli(&["status", "orders"]));
    for part in ["  incident ", " (of which probes ", "  dead for the outage 0  expired 0  peak ", " × limit"]
    {
        assert!(status.contains(part), "{part}: {status}");
    }
    let json = stdout(&processor.cli(&["status", "orders", "--json"]));
    assert!(json.contains("\"incident\":{\"from\":") || json.contains("\"incident\": {"), "{json}");

    // Attempts of what was held are unchanged: most were sent once, when the sink was back.
    let mut sent: BTreeMap<String, usize> = BTreeMap::new();
    receiver.requests().iter().for_each(|request| *sent.entry(request.id().to_owned()).or_default() += 1);
    assert_eq!(sent.len(), 460);
    assert!(sent.values().filter(|calls| **calls == 1).count() > 300, "{sent:?}");
}

/// Waiting does not outlive the deadline.
#[test]
fn what_passes_its_deadline_while_it_is_held_is_not_dead_for_the_outage() {
    let receiver = Receiver::start(|_| UNAVAILABLE);
    let dir = tempfile::tempdir().unwrap();
    let config = config(&receiver.url()).replace("concurrency =", "ttl = \"3s\"\nconcurrency =");
    let processor = Processor::start(dir.path(), &config);
    ingest(&processor, 0..100);
    wait_for("the breaker to open", || pipeline(&processor)["breaker"] != "closed");
    let dead = |reason: &str| {
        let line = format!("redrive_dead_letters_total{{pipeline=\"orders\",reason=\"{reason}\"}}");
        metric(&processor, &line).parse::<u64>().unwrap()
    };
    wait_for("messages to expire", || dead("ttl_exceeded") > 0);
    assert_eq!(dead("max_retries"), 0);
    let letters = processor.get("/v1/pipelines/orders/letters?filter=reason:ttl_exceeded").json();
    let held =
        letters["letters"].as_array().unwrap().iter().map(|letter| letter["held_ms"].as_u64().unwrap());
    assert!(held.max() > Some(0), "the letters say for how long they were held: {letters}");
}

/// The sink never comes back. Also those that were never sent end, and the letters say why.
#[test]
fn what_is_held_for_longer_than_hold_max_is_dead_for_that_and_not_for_exhaustion() {
    let receiver = Receiver::start(|_| UNAVAILABLE);
    let dir = tempfile::tempdir().unwrap();
    let config = config(&receiver.url()).replace("concurrency =", "hold_max = \"10s\"\nconcurrency =");
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

/// One URL, one 429: nobody calls before the time is over, and the status says so.
#[test]
fn a_retry_after_holds_for_everything_that_goes_to_the_url() {
    let busy = Arc::new(AtomicBool::new(true));
    let is_busy = Arc::clone(&busy);
    let receiver = Receiver::start(move |_| {
        if is_busy.swap(false, SeqCst) { ("429 Too Many Requests", "retry-after: 4\r\n") } else { OK }
    });
    let dir = tempfile::tempdir().unwrap();
    let config = config(&receiver.url()).replace("concurrency = 16", "concurrency = 1");
    let processor = Processor::start(dir.path(), &config);
    let started = std::time::Instant::now();
    ingest(&processor, 0..50);
    wait_for("it to wait", || pipeline(&processor)["health"]["waits_until"].is_string());
    let status = stdout(&processor.cli(&["status", "orders"]));
    let waits =
        status.contains("ASKED TO WAIT until ") || started.elapsed() > std::time::Duration::from_secs(3);
    assert!(waits, "{status}");
    let calls = receiver.requests().len();
    assert!(calls == 1 || started.elapsed() > std::time::Duration::from_secs(4), "{calls} calls");
    wait_for("all to be delivered", || pipeline(&processor)["succeeded"].as_u64() == Some(50));
    assert!(started.elapsed() >= std::time::Duration::from_secs(4), "not before its time");
}

/// A deploy that refuses everything: the guard pauses the pipeline before the queue is empty, a restart does not undo it,
/// and somebody may let it pass.
#[test]
fn a_flood_of_dead_letters_pauses_the_pipeline_until_somebody_has_looked() {
    let receiver = Receiver::start(|_| ("400 Bad Request", ""));
    let dir = tempfile::tempdir().unwrap();
    let mut processor = Processor::start(dir.path(), &config(&receiver.url()));
    ingest(&processor, 0..2_000);
    wait_for("the guard", || pipeline(&processor)["paused"] == true);
    wait_for("what was in flight", || pipeline(&processor)["pending"]["in_flight"] == 0);
    let shown = pipeline(&processor);
    let dead = shown["letters"]["open"].as_u64().unwrap();
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
