//! The plan of a replay on Kafka.

use serde_json::{Value, json};

use super::world::members::{good, letters};
use super::world::process::{Processor, stderr, stdout};
use super::world::stub::Stub;
use super::world::{kafka, wait_for};
use super::{lines, member};

/// Imports letters: three from before the receiver's memory, and one ambiguous.
fn import(processor: &Processor, pipeline: &str) {
    let now = redrive::timestamp::print(redrive::Time::from(std::time::SystemTime::now()));
    let line = |n: u64, seen: &str, history: &Value| {
        let id = format!("o-{n}");
        let payload = json!({ "json": { "order_id": id, "amount": 1 } });
        json!({ "message": id, "payload": payload, "first_seen": seen, "error": "503", "history": history })
            .to_string()
    };
    let unknown = json!([{
        "attempt": 1, "class": "transient", "kind": "timeout", "error": "timeout after 30 s", "counted": true,
        "ambiguous": true,
    }]);
    let text: Vec<String> = (1..4)
        .map(|n| line(n, "2026-01-01T00:00:00Z", &json!([])))
        .chain([line(4, &now, &unknown)])
        .collect();
    std::fs::write(processor.dir.join("letters.ndjson"), text.join("\n")).unwrap();
    good(processor, &["dlq", "import", "--file", "letters.ndjson", "--pipeline", pipeline]);
}

#[test]
fn a_plan_on_kafka_says_what_an_operator_should_know_before_a_replay() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    let budget = "[pipeline.budget]\nretries_per_minute = 60";
    let text = lines(&orders, "ledger_horizon = \"7d\"", budget);
    let mut processor = member(dir.path(), "redrive-0", &orders, &text, &stub.url);
    // One order of a customer is refused; a later one of the same customer succeeds.
    let order =
        |id: &str, amount: i32| ("c-1".to_owned(), json!({ "order_id": id, "amount": amount }).to_string());
    kafka::produce(&orders, [order("o-0", -1)]);
    wait_for("the letter", || letters(&processor, &orders)["open"] == 1);
    kafka::produce(&orders, [order("o-9", 1)]);
    wait_for("the later one to succeed", || stub.has_applied("o-9"));
    import(&processor, &orders);
    wait_for("the letters", || letters(&processor, &orders)["open"] == 5);

    let replay = ["dlq", "replay", &orders, "--all", "--rate", "2/s"];
    let plan = |processor: &Processor| good(processor, &[&replay[..], &["--dry-run"]].concat());
    wait_for("the success to be counted", || plan(&processor).contains("later success ("));
    // A restart does not lose this.
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0));
    processor.restart();
    wait_for("the letters to be read again", || letters(&processor, &orders)["open"] == 5);
    let plan_now = plan(&processor);
    let first = format!(
        "would replay 5 (frozen)   to {orders}.replay (only this pipeline sees it)   at 2/s ± jitter ≈ 3 s"
    );
    assert!(plan_now.starts_with(&first), "{plan_now}");
    for said in [
        "1 key has had a later success (list: --show superseded)",
        "canary 5   stops above 20% of the last 50 failed   breaker closed   retry budget 60 left",
        "1 letter has an attempt whose end is unknown",
        "3 letters were first attempted before the 168h that the receiver remembers ids",
    ] {
        assert!(plan_now.contains(said), "{said}: {plan_now}");
    }
    let listed = good(&processor, &[&replay[..], &["--dry-run", "--show", "superseded"]].concat());
    assert!(listed.contains("c-1"), "{listed}");
    for (more, said) in [(&[][..], "--ambiguous"), (&["--ambiguous", "ok"], "--beyond-ledger")] {
        let refused = processor.cli(&[&replay[..], more].concat());
        assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
    }
    assert_eq!(letters(&processor, &orders)["open"], 5, "a plan changes nothing");

    // The plan reports the last replay.
    let ran = processor.cli(&[&replay[..], &["--ambiguous", "ok", "--beyond-ledger"]].concat());
    let said = stdout(&ran);
    assert_eq!(ran.status.code(), Some(1), "one is refused again: {said}{}", stderr(&ran));
    assert!(said.contains("5/5   succeeded 4   dead again 1"), "{said}");
    let name = processor.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    let again = plan(&processor);
    let last = again.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("{again}"));
    assert!(last.contains("done   succeeded 4   dead again 1   untouched 0"), "{again}");
}
