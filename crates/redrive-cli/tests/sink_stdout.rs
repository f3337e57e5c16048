//! The stdout sink with the real binary: each message is a line, and the API and `status` show where messages go.

mod world;

use serde_json::{Value, json};
use world::process::{Processor, stdout};
use world::wait_for;

const CONFIG: &str = r#"
[engine]
dir = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name = "orders"
[pipeline.sink.stdout]
"#;

#[test]
fn each_message_is_printed_as_a_line_of_json() {
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), CONFIG);
    let sent = r#"{"id":"o-1","key":"c-7","payload":{"amount":12345678901234567890}}"#;
    assert_eq!(processor.post("/v1/pipelines/orders/messages", sent).status, 202);
    let printed = || {
        let log = processor.log();
        let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        lines.into_iter().find(|line| line["payload"]["amount"] == json!(12_345_678_901_234_567_890_u64))
    };
    wait_for("the line", || printed().is_some());
    let line = printed().unwrap();
    assert_eq!((&line["id"], &line["key"], &line["attempt"]), (&json!("o-1"), &json!("c-7"), &json!(1)));

    let pipeline = processor.get("/v1/pipelines/orders").json();
    assert_eq!((&pipeline["sink"], &pipeline["target"]), (&json!("stdout"), &json!("standard output")));
    let status = stdout(&processor.cli(&["status"]));
    assert!(status.contains("delivers to standard output (stdout)"), "{status}");
}
