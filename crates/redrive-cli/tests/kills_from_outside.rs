//! Processes that are killed or stopped from outside, with the real binary: no message for a webhook becomes a suspect,
//! and a process that was stopped for a while continues.

mod world;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use world::kills::{self, Disk};
use world::pill::Scene;
use world::process::Processor;
use world::receiver::{OK, Receiver, Request};
use world::wait_for;

const MESSAGES: &str = "/v1/pipelines/orders/messages";

fn bring(processor: &Processor, id: &str) {
    let answer = processor.post(MESSAGES, &format!("{{\"id\":\"{id}\",\"payload\":1}}"));
    assert_eq!(answer.status, 202, "{}", answer.body);
}

// Once, 60 kills under load quarantined 20 innocent messages of 30,000, all of which had been answered 200.
#[test]
fn messages_in_front_of_a_webhook_are_not_suspected_of_a_kill() {
    let source = "name = \"orders\"\nconcurrency = 50".to_owned();
    let scene = Scene { pipeline: "orders", engine: String::new(), source, bring: &bring };
    let dir = tempfile::tempdir().unwrap();
    kills::nobody_waits_alone(&scene, dir.path(), 50, 5, Disk::Intact);
}

/// `REDRIVE_OUTSIDE_KILLS` sets the number of kills; every life brings a hundred messages, and calls take up to 200 ms.
#[test]
fn kills_under_load_quarantine_nothing() {
    const PER_LIFE: u64 = 100;
    let kills =
        std::env::var("REDRIVE_OUTSIDE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8_u64);
    let receiver = Receiver::start(|request| {
        let spread = request.id().bytes().map(u64::from).sum::<u64>() * 7;
        std::thread::sleep(Duration::from_millis(20 + spread % 180));
        OK
    });
    let dir = tempfile::tempdir().unwrap();
    let pipeline = "name = \"orders\"\nconcurrency = 50";
    let mut processor = Processor::start(dir.path(), &world::config("", pipeline, &receiver.url()));
    for life in 0..kills {
        let line = |number| format!("{{\"id\":\"o-{life}-{number}\",\"payload\":1}}\n");
        let lines: Vec<String> = (0..PER_LIFE).map(line).collect();
        assert_eq!(processor.post_as(MESSAGES, "application/x-ndjson", &lines.concat()).status, 202);
        // At various moments: derived from the number of the life, spread over half a second.
        std::thread::sleep(Duration::from_millis(life * 7_919 % 500));
        processor.kill();
        processor.restart();
    }
    let shown = || processor.get("/v1/pipelines/orders").json();
    let is_over = |shown: &serde_json::Value| {
        ["ready", "delayed", "held", "in_flight"].iter().all(|state| shown["pending"][state] == 0)
    };
    wait_for("all to be delivered", || is_over(&shown()));
    let (shown, log) = (shown(), processor.log());
    assert_eq!((&shown["dead"], &shown["letters"]["open"]), (&0.into(), &0.into()), "{shown}");
    assert!(!log.contains("runs alone") && !log.contains("poison_pill"), "{log}");
    let requests = receiver.requests();
    let delivered: HashSet<&str> = requests.iter().map(Request::id).collect();
    assert_eq!(delivered.len() as u64, kills * PER_LIFE);
    println!("{kills} kills, {} messages, {} calls: 0 quarantined", delivered.len(), requests.len());
}

#[test]
fn a_process_that_dies_again_and_again_without_a_suspect_says_so() {
    let receiver = Receiver::start(|_| OK);
    let dir = tempfile::tempdir().unwrap();
    let sink = format!("[pipeline.sink.webhook]\nurl = \"{}\"", receiver.url());
    let both = format!("name = \"orders\"\n{sink}\n[[pipeline]]\nname = \"mail\"");
    let config = world::config("", &both, &receiver.url());
    let mut processor = Processor::start(dir.path(), &config);
    for kills in 1..=4 {
        let log = processor.log();
        assert!(!log.contains("runs ended without a clean stop"), "before kill {kills}: {log}");
        // A run is announced before it has any work, so send a message.
        bring(&processor, &format!("o-{kills}"));
        wait_for("the message", || !receiver.requests_for(&format!("o-{kills}")).is_empty());
        processor.kill();
        processor.restart();
    }
    let told =
        "the last 3 runs ended without a clean stop, and no message was running that could have ended them";
    wait_for("the process to say so", || processor.log().contains(told));
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
    assert_eq!(processor.log().matches("runs ended without a clean stop").count(), 1, "once for the process");
    processor.restart();
    bring(&processor, "o-last");
    wait_for("the message", || !receiver.requests_for("o-last").is_empty());
    assert_eq!(
        processor.log().matches("runs ended without a clean stop").count(),
        1,
        "the last end was clean"
    );
}

// A paused container, or a sleeping laptop. Once, 3 of 13 stops longer than 2 × timeout ended in exit code 70.
#[test]
fn a_processor_that_is_stopped_for_longer_than_the_watchdogs_patience_goes_on() {
    let slow = Arc::new(AtomicBool::new(true));
    let is_slow = Arc::clone(&slow);
    let receiver = Receiver::start(move |_| {
        while is_slow.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        OK
    });
    let pipeline = "name = \"orders\"\ntiers = [\"1s\"]\nhold_max = \"1h\"\ntimeout = \"500ms\"";
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &world::config("", pipeline, &receiver.url()));
    let in_flight = || processor.get("/v1/pipelines/orders").json()["pending"]["in_flight"].as_u64();
    for round in 0..8 {
        bring(&processor, &format!("o-{round}"));
        wait_for("a call", || in_flight() > Some(0));
        processor.signal("STOP");
        // The situation under test: the machine's clock runs, but the process does not.
        std::thread::sleep(Duration::from_millis(1_400));
        processor.signal("CONT");
        let log = processor.log();
        assert!(!log.contains("does not yield"), "round {round}: {log}");
    }
    slow.store(false, SeqCst);
    bring(&processor, "o-last");
    wait_for("the last one", || !receiver.requests_for("o-last").is_empty());
    assert_eq!(processor.get("/readyz").status, 200);
    let log = processor.log();
    assert!(!log.contains("does not yield"), "{log}");
}
