//! `[pipeline.auto_replay]` with the real program: letters of an outage are replayed automatically once the receiver
//! has recovered, letters that no replay can help are not, and the action log names the actor.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::{Value, json};
use world::process::{Processor, stdout};
use world::receiver::{OK, Receiver, UNAVAILABLE};
use world::wait_for;

const MESSAGES: &str = "/v1/pipelines/orders/messages";

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
tiers  = ["50ms"]
jitter = "none"
outage_gate = false      # messages are to die of the outage
[pipeline.breaker]
enabled = false
[pipeline.guard]
share  = "100%"
[pipeline.auto_replay]
enabled     = true
rate        = "100/s"
healthy_for = "1s"
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

#[test]
fn letters_of_an_outage_are_replayed_by_themselves_once_the_receiver_is_well() {
    let dir = tempfile::tempdir().unwrap();
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let receiver = Receiver::start(move |request| match request.id() {
        id if id.starts_with("bad") => ("422 Unprocessable Entity", ""),
        id if id.starts_with("good") || well.load(SeqCst) => OK,
        _ => UNAVAILABLE,
    });
    let processor = Processor::start(dir.path(), &config(&receiver.url()));
    let send = |id: &str| {
        let message = json!({ "id": id, "payload": { "amount": 1 } });
        assert_eq!(processor.post(MESSAGES, &message.to_string()).status, 202);
    };
    // An outage is detected only if something worked before.
    send("good-0");
    wait_for("the first delivery", || receiver.requests_for("good-0").len() == 1);
    (0..12).for_each(|n| send(&format!("o-{n}")));
    (0..3).for_each(|n| send(&format!("bad-{n}")));
    let letters = || processor.get("/v1/pipelines/orders").json()["letters"].clone();
    wait_for("all of them to be dead", || letters()["open"] == 15);
    is_well.store(true, SeqCst);
    // Other messages show that the receiver has recovered.
    send("good-1");
    wait_for("those that may heal to be delivered", || letters()["succeeded"] == 12);
    assert_eq!(letters()["open"], 3, "nobody tries those again");
    let job = processor.get("/v1/replays/r-1").json();
    assert_eq!((&job["actor"], &job["total"]), (&json!("auto-replay"), &json!(12)), "{job}");
    assert_eq!(job["rate"], json!(100.0), "as configured: {job}");
    let bad = receiver.requests_for("bad-0").len();
    assert_eq!(bad, 1, "permanent: called once, and never replayed");

    let actions = processor.cli(&["audit", "orders", "--actions", "--json"]);
    let actions = stdout(&actions);
    let actions: Vec<Value> = actions.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(actions.len(), 1, "{actions:?}");
    assert_eq!((&actions[0]["action"], &actions[0]["actor"]), (&json!("replay"), &json!("auto-replay")));
    assert_eq!(actions[0]["note"], "the sink has been healthy for 1s");
}
