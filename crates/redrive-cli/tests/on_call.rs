//! What an operator on call sees: `status`, a frame of `status --watch`, the log and the API name the cause of each of
//! these situations, with the real binary and misbehaving receivers.

mod world;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use world::process::{Processor, redrive, stdout};
use world::receiver::{HANG_UP, OK, Receiver, Reply, UNAVAILABLE};
use world::{PATIENCE, config, wait_for};

const ENGINE: &str = "kind = \"embedded\"";
const BREAKER: &str = r#"name = "orders"
tiers = ["30s"]
concurrency = 16
breaker = { cooldown = "1h", cooldown_max = "1h" }
"#;
const BUSY: Reply = ("429 Too Many Requests", "retry-after: 86400\r\n");
const REFUSED: Reply = ("422 Unprocessable Content", "");

fn ingest(processor: &Processor, ids: Range<usize>, more: &Value) {
    let mut lines = String::new();
    for n in ids {
        let mut line = json!({ "id": format!("o-{n}"), "payload": { "card": "4111-1111" } });
        line.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        writeln!(lines, "{line}").unwrap();
    }
    let answer = processor.post_as("/v1/pipelines/orders/messages", "application/x-ndjson", &lines);
    assert_eq!(answer.status, 202, "{}", answer.body);
}

fn orders(processor: &Processor) -> Value {
    processor.get("/v1/pipelines/orders").json()
}

fn status(processor: &Processor) -> String {
    stdout(&processor.cli(&["status", "orders"]))
}

/// The notice with this subject, if there is one.
fn notice(processor: &Processor, subject: &str) -> Option<Value> {
    let shown = orders(processor);
    shown["attention"].as_array().unwrap().iter().find(|notice| notice["subject"] == subject).cloned()
}

/// Lines of `status --watch`, up to the first that contains all these parts.
fn watch(processor: &Processor, args: &[&str], parts: &[&str]) -> Vec<String> {
    let mut child = redrive(&processor.dir)
        .args(["--url", &processor.url(""), "status", "--watch"])
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = Vec::new();
    let began = Instant::now();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let is_it = parts.iter().all(|part| line.contains(part));
        lines.push(line);
        assert!(is_it || began.elapsed() < PATIENCE, "no line with {parts:?}:\n{}", lines.join("\n"));
        if is_it {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(parts.iter().all(|part| lines.last().unwrap().contains(part)), "{parts:?}: {lines:?}");
    lines
}

/// The events of the log with this text, as JSON.
fn events(processor: &Processor, message: &str) -> Vec<Value> {
    let log = processor.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"].as_str().is_some_and(|text| text.contains(message))).collect()
}

#[test]
fn a_receiver_that_waits_and_resets_connections_is_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| {
        std::thread::sleep(Duration::from_millis(20));
        HANG_UP
    });
    let processor = Processor::start(dir.path(), &config(ENGINE, BREAKER, &receiver.url()));
    ingest(&processor, 0..100, &json!({}));
    wait_for("the breaker to open", || orders(&processor)["breaker"] == "open");
    wait_for("what ran", || orders(&processor)["pending"]["in_flight"] == 0);

    let text = status(&processor);
    assert!(text.contains("breaker OPEN since ") && text.contains("Z ("), "{text}");
    assert!(text.contains(" × reset"), "{text}");
    assert!(
        text.contains("receivers closed ") && text.contains("connections while handling a message"),
        "{text}"
    );
    let open = notice(&processor, "breaker").unwrap();
    assert_eq!(open["level"], "bad");
    assert!(open["text"].as_str().unwrap().contains("the last one with reset"), "{open}");
    assert_eq!(orders(&processor)["recent"]["failed"][0]["kind"], "reset");
    let lines = watch(&processor, &["orders"], &["sent/s ", "in flight 0", "breaker OPEN"]);
    assert!(lines[0].contains("▲ breaker open since ") && lines[0].contains("with reset"), "{lines:?}");

    // Each event names the message, the failure and the decision.
    wait_for("the log", || !events(&processor, "attempt failed").is_empty());
    let failed = events(&processor, "attempt failed").remove(0);
    assert_eq!((&failed["kind"], &failed["decision"]), (&json!("reset"), &json!("retry_at")), "{failed}");
    assert!(failed["message_id"].as_str().unwrap().starts_with("o-"), "{failed}");
    assert_eq!(failed["attempt"], 1, "{failed}");
    assert!(failed["due"].as_str().unwrap().ends_with('Z'), "{failed}");
    assert!(!processor.log().contains("4111-1111"));
}

#[test]
fn an_outage_with_the_profile_payments_says_what_failed_and_does_not_flood_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let receiver = Receiver::start(move |_| if is_down.load(SeqCst) { UNAVAILABLE } else { OK });
    let pipeline = r#"name = "orders"
profile = "payments"
backoff = { fixed = "300ms" }
concurrency = 64
breaker = { cooldown = "1h", cooldown_max = "1h" }"#;
    let mut processor = Processor::start(dir.path(), &config(ENGINE, pipeline, &receiver.url()));
    ingest(&processor, 0..800, &json!({}));
    wait_for("the breaker to open", || orders(&processor)["breaker"] == "open");
    wait_for("what ran", || orders(&processor)["pending"]["in_flight"] == 0);

    let shown = orders(&processor);
    assert_eq!(shown["pending"]["held"], 800, "{shown}");
    let text = status(&processor);
    assert!(text.contains("nothing is dead-lettered for it") && text.contains(" × 503"), "{text}");
    // While the breaker is open, all waiting messages are held.
    assert!(text.contains("ready 0   delayed 0   held 800"), "{text}");
    watch(&processor, &["orders"], &["held 800", "breaker OPEN"]);
    let failed = events(&processor, "attempt failed");
    let attempts = shown["attempts"].as_u64().unwrap();
    assert!(attempts > 10 && failed.len() <= 20, "{} events of {attempts} attempts", failed.len());
    assert!(failed.iter().all(|event| event["status_code"] == 503), "{failed:?}");

    // Once it is over, the time held is reported separately from the latency.
    down.store(false, SeqCst);
    assert!(processor.cli(&["breaker", "close", "orders"]).status.success());
    wait_for("everything", || orders(&processor)["succeeded"] == 800);
    let recent = orders(&processor)["recent"].clone();
    assert_eq!((&recent["window_s"], &recent["held"]), (&json!(300), &json!(800)), "{recent}");
    assert!(recent["held_p99_ms"].is_number() && recent["late_p99_ms"].is_number(), "{recent}");
    assert!(status(&processor).contains("  last 5 min: p99 "), "{}", status(&processor));
    assert!(status(&processor).contains("   held p99 "), "{}", status(&processor));
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0));
    let left_out: u64 = events(&processor, "not logged one by one")
        .iter()
        .filter_map(|event| event["left_out"].as_u64())
        .sum();
    let failed = events(&processor, "attempt failed").len() as u64;
    assert_eq!(failed + left_out, attempts, "every failed attempt is in the log or counted there");
}

#[test]
fn replays_into_a_dead_service_are_named_as_what_opened_the_breaker() {
    let dir = tempfile::tempdir().unwrap();
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    let receiver = Receiver::start(move |_| if is_down.load(SeqCst) { UNAVAILABLE } else { REFUSED });
    let processor = Processor::start(dir.path(), &config(ENGINE, BREAKER, &receiver.url()));
    ingest(&processor, 0..60, &json!({}));
    wait_for("the letters", || orders(&processor)["letters"]["open"] == 60);

    // The log names the letter like every command, and the correlation id finds it.
    let dead = events(&processor, "attempt failed").remove(0);
    assert_eq!(dead["decision"], "dead_letter", "{dead}");
    let letter = format!("/v1/pipelines/orders/letters/{}", dead["letter"].as_str().unwrap());
    let letter = processor.get(&letter).json();
    assert_eq!(letter["message"], dead["message_id"], "{letter}");
    let filter = format!("correlation_id:{}", dead["correlation_id"].as_str().unwrap());
    let found = processor.cli(&["dlq", "inspect", "orders", "--filter", &filter, "--json"]);
    assert_eq!(stdout(&found).matches(dead["message_id"].as_str().unwrap()).count(), 1, "{}", stdout(&found));

    down.store(true, SeqCst);
    let replay =
        processor.post("/v1/replays", r#"{"pipeline":"orders","all":true,"canary":0,"stop_at":"off"}"#);
    assert!(replay.status < 300, "{}", replay.body);
    wait_for("the breaker to open", || orders(&processor)["breaker"] == "open");
    let open = notice(&processor, "breaker").unwrap();
    assert!(open["text"].as_str().unwrap().contains("Most of them were replayed letters"), "{open}");
    let text = status(&processor);
    assert!(text.contains("breaker OPEN since ") && text.contains(" of replayed letters)"), "{text}");
    watch(&processor, &["orders"], &["held ", "breaker OPEN"]);
}

#[test]
fn a_retry_after_that_holds_a_pipeline_is_shown_with_its_date_and_how_to_lift_it() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| BUSY);
    let pipeline = BREAKER.replace("concurrency = 16", "concurrency = 1");
    let processor = Processor::start(dir.path(), &config(ENGINE, &pipeline, &receiver.url()));
    ingest(&processor, 0..20, &json!({ "headers": { "correlation-id": "trace-7" } }));
    wait_for("it to wait", || notice(&processor, "retry_after").is_some());
    let asked = notice(&processor, "retry_after").unwrap();
    let today = orders(&processor)["health"]["waits_until"].as_str().unwrap()[..10].to_owned();
    let short = asked["short"].as_str().unwrap().to_owned();
    assert!(short.starts_with(&format!("ASKED TO WAIT until {today} ")) && short.ends_with('Z'), "{asked}");
    assert!(asked["text"].as_str().unwrap().contains("answered o-0 with 429 and Retry-After 24h"), "{asked}");
    assert_eq!(asked["command"], "redrive resume orders --now");
    let text = status(&processor);
    assert!(text.contains(&short) && text.contains("`redrive resume orders --now` lifts it"), "{text}");
    watch(&processor, &["orders"], &["held 20", &short]);
    // A waiting message is found by its correlation id too.
    let found = processor.cli(&["messages", "orders", "--filter", "correlation_id:trace-7", "--json"]);
    assert!(stdout(&found).contains("o-19"), "{}{}", stdout(&found), world::process::stderr(&found));
    let asked = events(&processor, "nothing is sent until ");
    assert_eq!(asked[0]["message_id"], "o-0", "{asked:?}");
}

#[test]
fn a_pause_by_the_guard_or_by_a_person_and_waiting_keys_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let receiver =
        Receiver::start(|request| if request.id().starts_with("o-1") { REFUSED } else { UNAVAILABLE });
    let pipeline = "name = \"orders\"\nordering = \"key\"\ntiers = [\"10m\"]\nafter_dead = \"continue\"";
    let config = config(ENGINE, pipeline, &receiver.url());
    let mail =
        format!("[[pipeline]]\nname = \"mail\"\n[pipeline.sink.webhook]\nurl = \"{}\"\n", receiver.url());
    let processor = Processor::start(dir.path(), &format!("{config}{mail}"));
    ingest(&processor, 20..60, &json!({ "key": "one" }));
    wait_for("the first to fail", || orders(&processor)["pending"]["delayed"] == 1);
    // Two pipelines: a block under the time.
    let lines = watch(&processor, &[], &["  orders  sent/s ", "waiting for their key 39", "in flight 0"]);
    let heads = lines.iter().filter(|line| line.ends_with('Z') && line.len() == "21:40:05Z".len()).count();
    assert!(
        heads >= 1 && lines.iter().all(|line| line.ends_with('Z') || line.starts_with("  ")),
        "{lines:?}"
    );

    assert!(processor.cli(&["pause", "orders"]).status.success());
    wait_for("the pause", || notice(&processor, "paused").is_some());
    assert!(status(&processor).starts_with("pipeline orders   PAUSED   "), "{}", status(&processor));
    watch(&processor, &["orders"], &["PAUSED", "held "]);
    assert!(processor.cli(&["resume", "orders"]).status.success());

    ingest(&processor, 1_000..1_400, &json!({}));
    wait_for("the guard", || notice(&processor, "guard").is_some());
    let text = status(&processor);
    assert!(text.contains("PAUSED") && text.contains("paused by the dead-letter guard: "), "{text}");
    watch(&processor, &["orders"], &["PAUSED by the dead-letter guard"]);
    wait_for("the log", || !events(&processor, "paused by the dead-letter guard").is_empty());
    let dead = orders(&processor)["letters"]["open"].as_u64().unwrap();
    assert!(text.contains("dead ") && dead >= 100, "{text}");
}

#[test]
fn several_pills_behind_one_webhook_are_named_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let pills = ["o-7", "o-8", "o-9"];
    let receiver = Receiver::start(move |request| {
        std::thread::sleep(Duration::from_millis(10));
        if pills.contains(&request.id()) { HANG_UP } else { OK }
    });
    let pipeline =
        "name = \"orders\"\ntiers = [\"100ms\", \"200ms\", \"400ms\", \"800ms\"]\njitter = \"none\"";
    let processor = Processor::start(dir.path(), &config(ENGINE, pipeline, &receiver.url()));
    ingest(&processor, 0..60, &json!({}));
    wait_for("a reset", || notice(&processor, "resets").is_some());
    let text = status(&processor);
    assert!(text.contains("receivers closed ") && text.contains(" × reset"), "{text}");
    watch(&processor, &["orders"], &[" connections closed by receivers"]);
    wait_for("the letters", || orders(&processor)["letters"]["open"] == 3);
    let failed = events(&processor, "attempt failed");
    let mut dead: Vec<&Value> = failed.iter().filter(|event| event["letter"].is_string()).collect();
    dead.sort_by_key(|event| event["message_id"].to_string());
    let named: Vec<&Value> = dead.iter().map(|event| &event["message_id"]).collect();
    assert_eq!(named, pills, "{dead:?}");
    assert!(
        dead.iter().all(|event| event["kind"] == "reset" && event["decision"] == "dead_letter"),
        "{dead:?}"
    );
    let closed = events(&processor, "the receiver closed the connection while handling o-");
    assert!(closed.iter().all(|event| pills.contains(&event["message_id"].as_str().unwrap())), "{closed:?}");
}

#[test]
fn a_process_that_was_killed_goes_on_at_full_concurrency_and_suspects_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    let receiver = Receiver::start(move |_| {
        counted.fetch_add(1, SeqCst);
        std::thread::sleep(PATIENCE);
        OK
    });
    let mut processor = Processor::start(dir.path(), &config(ENGINE, BREAKER, &receiver.url()));
    ingest(&processor, 0..8, &json!({}));
    wait_for("all to run", || begun.load(SeqCst) == 8);
    processor.kill();
    processor.restart();
    wait_for("all to run again, beside each other", || begun.load(SeqCst) == 16);
    assert!(notice(&processor, "suspects").is_none(), "{}", status(&processor));
    watch(&processor, &["orders"], &["in flight 8"]);
}

#[test]
fn a_process_that_stood_still_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let processor = Processor::start(dir.path(), &config(ENGINE, BREAKER, &receiver.url()));
    processor.signal("STOP");
    // Longer than the five seconds from which a stop counts.
    std::thread::sleep(Duration::from_secs(6));
    processor.signal("CONT");
    wait_for("it to be noticed", || notice(&processor, "standstill").is_some());
    let text = status(&processor);
    assert!(text.contains("the process did not run for "), "{text}");
    watch(&processor, &["orders"], &["process did not run for "]);
    wait_for("the log", || !events(&processor, "▲ the process did not run for ").is_empty());
}
