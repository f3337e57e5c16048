//! The worked examples of the requirements, over real HTTP: S0-9, and S2-30 with S2-82.

mod world;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use world::process::{Processor, stderr, stdout};
use world::receiver::{OK, Receiver, UNAVAILABLE};
use world::wait_for;

fn config(url: &str) -> String {
    format!(
        r#"
[engine]
kind = "embedded"
dir  = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name   = "orders"
tiers  = ["300ms", "600ms", "1200ms"]
jitter = "none"
[pipeline.sink.webhook]
url = "{url}"
allow_private_addresses = true
"#
    )
}

/// S0-9: of a batch of 1,000, 200 fail; 0 of the 800 are delivered again, 200 are retried.
#[test]
fn of_a_thousand_with_200_failing_the_800_are_delivered_once() {
    let dir = tempfile::tempdir().unwrap();
    let calls: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
    let seen = Arc::clone(&calls);
    let receiver = Receiver::start(move |request| {
        let number: u32 = request.id().trim_start_matches("o-").parse().unwrap();
        let mut seen = seen.lock().unwrap();
        let attempt = seen.entry(request.id().to_owned()).or_default();
        *attempt += 1;
        if number.is_multiple_of(5) && *attempt == 1 { UNAVAILABLE } else { OK }
    });
    let processor = Processor::start(dir.path(), &config(&receiver.url()));
    let mut lines = String::new();
    for n in 0..1000 {
        writeln!(lines, r#"{{"id":"o-{n}","payload":{{"n":{n}}}}}"#).unwrap();
    }
    let path = "/v1/pipelines/orders/messages";
    assert_eq!(processor.post_as(path, "application/x-ndjson", &lines).status, 202);
    wait_for("all thousand to succeed", || processor.get("/v1/pipelines/orders").json()["succeeded"] == 1000);
    let calls = calls.lock().unwrap();
    let once = calls.values().filter(|calls| **calls == 1).count();
    let twice = calls.values().filter(|calls| **calls == 2).count();
    assert_eq!((once, twice, calls.len()), (800, 200, 1000));
}

/// S2-30 and S2-82: transient failures, poison, an outage and `kill -9`; afterwards success + dead == produced, by id
/// against the downstream's own ledger.
#[test]
fn after_failures_poison_an_outage_and_kill_9_every_id_is_accounted_for() {
    let dir = tempfile::tempdir().unwrap();
    let downstream_port = world::free_port();
    let downstream_listen = format!("127.0.0.1:{downstream_port}");
    let mut downstream = world::process::redrive(dir.path())
        .args(["downstream", "--listen", &downstream_listen, "--fail-rate", "15%", "--poison-detect"])
        .args(["--outage-window", "2s@3s", "--ledger", "applied.log"])
        .spawn()
        .unwrap();
    let downstream_url = format!("http://{downstream_listen}");
    wait_for("the downstream", || {
        world::http::try_send("GET", &format!("{downstream_url}/livez"), &[], "").is_some()
    });
    let mut processor = Processor::start(dir.path(), &config(&downstream_url));
    let mut producer = world::process::redrive(dir.path())
        .args(["producer", "--target", &processor.url("/v1/pipelines/orders/messages")])
        .args(["--rate", "300", "--count", "2400", "--poison-rate", "1%", "--seed", "7"])
        .args(["--ids-file", "ids.txt", "--listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        processor.kill();
        processor.restart();
    }
    assert!(producer.wait().unwrap().success());
    wait_for("everything to come to its end", || {
        let pending = &processor.get("/v1/pipelines/orders").json()["pending"];
        ["ready", "delayed", "held", "in_flight"].iter().all(|state| pending[*state] == 0)
    });
    let audit =
        processor.cli(&["audit", "orders", "--applied", &downstream_url, "--ids-file", "ids.txt", "--json"]);
    let text = stdout(&audit);
    let _ = downstream.kill();
    let _ = downstream.wait();
    assert!(audit.status.success(), "{text}{}", stderr(&audit));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["produced"], 2400, "{report}");
    assert_eq!((&report["missing"], &report["pending"]), (&0.into(), &0.into()), "{report}");
    let dead = report["dead"]["total"].as_u64().unwrap();
    assert_eq!(report["succeeded"].as_u64().unwrap() + dead, 2400, "{report}");
    assert!(dead > 0, "there was poison: {report}");
}
