//! `redrive processor --supervise` with the real binary: its worker is killed and restarted, and ending the supervisor
//! ends both.

mod world;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use world::process::{Processor, redrive, stderr};
use world::receiver::{OK, Receiver};
use world::{free_port, wait_for};

const MESSAGES: &str = "/v1/pipelines/orders/messages";

fn command(dir: &Path, port: u16, url: &str, more: &[&str]) -> Command {
    let mut command = redrive(dir);
    command
        .args(["processor", "--name", "orders", "--sink-url", url, "--tiers", "50ms,100ms"])
        .args(["--dir", "store", "--listen", &format!("127.0.0.1:{port}")])
        .args(more);
    command
}

fn supervised(dir: &Path, url: &str) -> Processor {
    let port = free_port();
    Processor::run(dir, port, &mut command(dir, port, url, &["--supervise"]))
}

/// The events of the log with this message, oldest first.
fn events(log: &str, message: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

/// The workers so far, by process id.
fn workers(log: &str) -> Vec<u64> {
    events(log, "worker started").iter().filter_map(|event| event["worker"].as_u64()).collect()
}

fn send(signal: &str, pid: u64) {
    let sent = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Whether a process exists; a zombie does not count.
fn lives(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|state| state != 'Z')
}

/// Asserts that the port and the directory are free: another processor starts there at once.
fn all_is_free(dir: &Path, port: u16, url: &str) {
    drop(TcpListener::bind(("127.0.0.1", port)).expect("the port is free"));
    let mut next = Processor::run(dir, port, &mut command(dir, port, url, &[]));
    next.signal("TERM");
    assert_eq!(next.wait(), Some(0), "{}", next.log());
}

/// The third signal kills a worker that does not end; a reload request does not count.
#[test]
fn sighup_is_passed_on_and_ends_neither_the_worker_nor_its_supervisor() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let mut processor = supervised(dir.path(), &receiver.url());
    for times in 1..=4 {
        processor.signal("HUP");
        wait_for("the log", || processor.log().matches("SIGHUP: nothing to reload").count() == times);
    }
    assert_eq!(workers(&processor.log()).len(), 1, "{}", processor.log());
    assert_eq!(processor.post(MESSAGES, r#"{"id":"o-1"}"#).status, 202);
    wait_for("a delivery", || receiver.requests_for("o-1").len() == 1);
    // It still supervises.
    send("KILL", workers(&processor.log())[0]);
    wait_for("another worker", || workers(&processor.log()).len() == 2);
    wait_for("its API", || {
        let answer = world::http::try_send("GET", &processor.url("/readyz"), &[], "");
        answer.is_some_and(|answer| answer.status == 200)
    });
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

#[test]
fn a_worker_that_is_killed_comes_back_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let mut processor = supervised(dir.path(), &receiver.url());
    assert_eq!(processor.post(MESSAGES, r#"{"id":"o-1","delay":"3s"}"#).status, 202);
    let first = workers(&processor.log())[0];
    assert_ne!(Some(first), processor.id().map(u64::from), "the worker is a process of its own");

    send("KILL", first);
    wait_for("another worker", || workers(&processor.log()).len() == 2);
    wait_for("what the first one accepted", || receiver.requests_for("o-1").len() == 1);
    let died = &events(&processor.log(), "worker died")[0];
    assert!(died["end"].as_str().unwrap().starts_with("signal 9 (SIGKILL"), "{died}");
    assert!(died["by"].as_str().unwrap().starts_with("another process"), "{died}");
    assert_eq!(died["restart_in"], "1s", "{died}");
    assert_eq!(processor.post(MESSAGES, r#"{"id":"o-2"}"#).status, 202);
    wait_for("what the second one accepted", || receiver.requests_for("o-2").len() == 1);

    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

#[test]
fn one_sigterm_ends_both_in_good_order() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let mut processor = supervised(dir.path(), &receiver.url());
    let worker = workers(&processor.log())[0];
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
    assert!(!lives(worker));
    assert!(processor.log().contains("drained"), "{}", processor.log());
    assert_eq!(events(&processor.log(), "worker died").len(), 0);
    all_is_free(dir.path(), processor.port, &receiver.url());
}

/// By default systemd signals every process of a unit, so that the worker receives the same SIGTERM twice.
#[test]
fn a_sigterm_to_both_at_once_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let mut processor = supervised(dir.path(), &receiver.url());
    let worker = workers(&processor.log())[0];
    let both = [processor.id().unwrap().to_string(), worker.to_string()];
    assert!(Command::new("kill").arg("-TERM").args(both).status().unwrap().success());
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
    assert!(!lives(worker));
}

#[test]
fn a_second_interrupt_ends_both_now() {
    let dir = tempfile::tempdir().unwrap();
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&arrived);
    let receiver = Receiver::start(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    });
    let mut processor = supervised(dir.path(), &receiver.url());
    assert_eq!(processor.post(MESSAGES, r#"{"id":"o-1"}"#).status, 202);
    wait_for("the delivery", || arrived.load(Ordering::SeqCst) == 1);
    let worker = workers(&processor.log())[0];
    processor.signal("INT");
    wait_for("the first one to be heard", || processor.get("/readyz").status == 503);
    processor.signal("INT");
    // After a drain it would have ended with 0.
    assert_eq!(processor.wait(), Some(130), "{}", processor.log());
    assert!(!lives(worker));
    all_is_free(dir.path(), processor.port, &Receiver::start(|_| OK).url());
}

#[test]
fn a_worker_does_not_outlive_a_supervisor_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let mut processor = supervised(dir.path(), &receiver.url());
    let worker = workers(&processor.log())[0];
    processor.kill();
    wait_for("the worker to end", || !lives(worker));
    all_is_free(dir.path(), processor.port, &receiver.url());
}

#[test]
fn a_configuration_that_is_wrong_is_not_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--supervise", "--jitter", "some"];
    let output = command(dir.path(), free_port(), "http://127.0.0.1:1/hook", &more).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(workers(&stderr(&output)).len(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("is not started again"), "{}", stderr(&output));
}

/// The disk may be repaired without touching the supervisor: it continues as soon as storage works.
#[test]
fn storage_that_keeps_failing_is_tried_again_until_it_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let url = Receiver::start(|_| OK).url();
    let port = free_port();
    let mut first = Processor::run(dir.path(), port, &mut command(dir.path(), port, &url, &[]));
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0), "{}", first.log());
    let journal = dir.path().join("store/orders/journal");
    let (segment, elsewhere) =
        (journal.join("j-0000000000000000.seg"), journal.join("j-0000000000010000.seg"));
    std::fs::rename(&segment, &elsewhere).unwrap();
    let log = dir.path().join("processor.log");
    std::fs::remove_file(&log).unwrap();
    let repairing = std::thread::spawn(move || {
        wait_for("three attempts", || {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            events(&log, "worker died").len() >= 3
        });
        std::fs::rename(elsewhere, segment).unwrap();
    });
    let mut processor =
        Processor::run(dir.path(), port, &mut command(dir.path(), port, &url, &["--supervise"]));
    repairing.join().unwrap();
    let died = events(&processor.log(), "worker died");
    assert!(died.iter().all(|died| died["end"].as_str().unwrap().starts_with("exit code 74")), "{died:?}");
    assert_eq!(processor.post(MESSAGES, r#"{"id":"o-1"}"#).status, 202);
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

#[test]
fn a_directory_that_is_in_use_is_waited_for() {
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(|_| OK);
    let port = free_port();
    let mut owner = Processor::run(dir.path(), port, &mut command(dir.path(), port, &receiver.url(), &[]));
    let log = own.path().join("processor.log");
    let waiting = std::thread::spawn(move || {
        wait_for("the second one to be refused", || {
            std::fs::read_to_string(&log).unwrap_or_default().contains("exit code 75 (try again)")
        });
        owner.signal("TERM");
        assert_eq!(owner.wait(), Some(0));
    });
    let port = free_port();
    let store = dir.path().join("store").display().to_string();
    let mut second = redrive(own.path());
    second
        .args([
            "processor",
            "--supervise",
            "--name",
            "orders",
            "--sink-url",
            &receiver.url(),
            "--dir",
            &store,
        ])
        .args(["--listen", &format!("127.0.0.1:{port}")]);
    let mut second = Processor::run(own.path(), port, &mut second);
    waiting.join().unwrap();
    second.signal("TERM");
    assert_eq!(second.wait(), Some(0), "{}", second.log());
}
