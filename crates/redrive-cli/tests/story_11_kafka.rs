//! Story 11, rolling restart, scale out, upgrade: three processors with separate names are cleanly stopped and
//! restarted one after the other, under load. Nothing is missing, nothing is done twice, no partition moves. Then one
//! is killed, and the others take over.
//!
//! The same at 2,000 orders per second, with a separate auditor: `redrive-kafka-faults`, `proofs/rolling.rs`; what a
//! kill may repeat: `proofs/kill.rs`. A growing source: `redrive-kafka`, `tests/engine.rs`.
#![cfg(feature = "kafka")]

mod world;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use world::process::{Processor, redrive, stderr, stdout};
use world::stub::Stub;
use world::{free_port, kafka, wait_for};

const MEMBERS: [&str; 3] = ["redrive-0", "redrive-1", "redrive-2"];
const PARTITIONS: i32 = 12;
/// What three unoptimised processors and the broker can handle on a small machine in addition to restarts.
const RATE: &str = "400";
/// Messages waiting at the end of the load are delivered within this time, on any machine.
const PATIENCE: Duration = world::PATIENCE;

fn config(member: &str, topic: &str, url: &str, timeout: &str) -> String {
    let engine = kafka::engine(&format!("{topic}-delivery"), member);
    let lines = format!(
        r#"source  = "{topic}"
id      = "json:/order_id"
tiers   = ["300ms", "1s", "2s"]
timeout = "{timeout}""#
    );
    world::config(&format!("{engine}\n[engine.kafka]\n\"session.timeout.ms\" = 20000"), &lines, url)
}

/// An endless stream of orders, until it is stopped.
struct Load(Child);

impl Load {
    /// Starts with order number `first`, so that no order is produced twice.
    fn start(dir: &Path, topic: &str, first: &str) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let mut command = redrive(dir);
        command.args(["producer", "--brokers", &kafka::address(), "--topic", topic, "--rate", RATE]);
        command
            .args(["--first", first, "--listen", &listen])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Stops; all orders sent are acknowledged.
    fn stop(&mut self) {
        assert!(self.is_running(), "the load has ended by itself");
        let sent = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.0.wait().unwrap();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let ran = redrive(dir).args(args).output().unwrap();
    (ran.status.code(), stdout(&ran) + &stderr(&ran))
}

/// The source partitions of each member, by name.
fn members(dir: &Path, topic: &str) -> Vec<(String, Value)> {
    let (_, said) = run(dir, &["status", topic, "--members", "--json", "-q"]);
    let said: Value = serde_json::from_str(&said).unwrap_or_default();
    let mut found: Vec<(String, Value)> = said["members"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|member| {
            (member["member"].as_str().unwrap_or_default().to_owned(), member["partitions"].clone())
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// The audit once nothing is pending any more; its exit code must be 0.
fn audit_at_the_end(dir: &Path, topic: &str, applied: &str) -> Value {
    let began = Instant::now();
    loop {
        let (code, said) = run(dir, &["audit", topic, "--applied", applied, "--json", "-q"]);
        let found: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        if found["pending"] == 0 {
            assert_eq!(code, Some(0), "{found}");
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "still pending: {found}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn applied(stub: &Stub) -> u64 {
    stub.stats()["applied"].as_u64().unwrap_or_else(|| panic!("{}", stub.stats()))
}

/// Waits until `more` further orders have arrived.
fn arrive(stub: &Stub, more: u64) {
    let before = applied(stub);
    wait_for("the load to arrive", || applied(stub) >= before + more);
}

#[test]
fn a_rolling_restart_misses_nothing_repeats_nothing_and_moves_no_partition() {
    let dirs: Vec<_> = MEMBERS.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    let home = dirs[0].path();
    let stub = Stub::start(home, &["--fail-rate", "10%"]);
    let topic = kafka::name("orders");
    kafka::create(&topic, PARTITIONS);
    let start = |at: usize| Processor::start(dirs[at].path(), &config(MEMBERS[at], &topic, &stub.url, "10s"));
    let mut processors: Vec<Processor> = (0..MEMBERS.len()).map(start).collect();
    wait_for("each to have its share", || {
        let found = members(home, &topic);
        found.len() == 3 && found.iter().all(|(_, partitions)| partitions.as_array().map(Vec::len) == Some(4))
    });
    let before = members(home, &topic);
    let mut load = Load::start(home, &topic, "0");

    for (at, processor) in processors.iter_mut().enumerate() {
        arrive(&stub, 300);
        processor.signal("TERM");
        assert_eq!(processor.wait(), Some(0), "{}", processor.log());
        let log = processor.log();
        assert!(log.contains("0 interrupted"), "{} did not drain: {log}", MEMBERS[at]);
        processor.restart();
        wait_for("the same partitions", || members(home, &topic) == before);
    }
    arrive(&stub, 300);
    let (code, said) = run(home, &["status", &topic, "--members"]);
    assert_eq!(code, Some(0), "{said}");
    let head: Vec<&str> = said.lines().next().unwrap_or_default().split("  ").map(str::trim).collect();
    let head: Vec<&str> = head.into_iter().filter(|word| !word.is_empty()).collect();
    assert_eq!(head, ["MEMBER", "VERSION", "POLICY", "PARTITIONS", "IN FLIGHT", "LAG"], "{said}");
    for (member, partitions) in MEMBERS.iter().zip(["0-3", "4-7", "8-11"]) {
        let line = said.lines().find(|line| line.starts_with(member)).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains(partitions), "{said}");
    }
    assert!(!said.contains("different settings"), "{said}");
    load.stop();
    let found = audit_at_the_end(home, &topic, &stub.url);
    println!("rolling restart of 3 members: {found}");
    assert!(found["produced"].as_u64() > Some(1_200), "{found}");
    assert_eq!(
        (&found["missing"], &found["twins"], &found["repeated_calls"], &found["duplicate_effects"]),
        (&json!(0), &json!(0), &json!(0), &json!(0)),
        "{found}"
    );
    for processor in &processors {
        let health = processor.get(&format!("/v1/pipelines/{topic}")).json()["health"].clone();
        assert_eq!(health["suspects"], json!(0), "{health}");
        // The number is current; earlier suspects are in the history.
        let history = health["history"].as_array().unwrap_or_else(|| panic!("{health}"));
        assert!(
            !history.iter().any(|change| change["what"].as_str().unwrap().contains("suspects")),
            "messages were suspected after a clean stop: {health}"
        );
    }

    // One is killed under load, and comes back with a changed setting.
    let mut load = Load::start(home, &topic, "1000000");
    arrive(&stub, 300);
    processors[1].kill();
    wait_for("the others to have its partitions", || {
        let found = members(home, &topic);
        found.len() == 2 && found.iter().all(|(_, partitions)| partitions.as_array().map(Vec::len) == Some(6))
    });
    arrive(&stub, 300);
    processors[1] = Processor::start(dirs[1].path(), &config(MEMBERS[1], &topic, &stub.url, "11s"));
    wait_for("it to be back", || members(home, &topic).len() == 3);
    let (_, said) = run(home, &["status", &topic, "--members"]);
    assert!(said.contains("members run with different settings"), "{said}");
    load.stop();
    let found = audit_at_the_end(home, &topic, &stub.url);
    println!("kill -9 of one of three: {found}");
    assert_eq!((&found["missing"], &found["duplicate_effects"]), (&json!(0), &json!(0)), "{found}");
}
