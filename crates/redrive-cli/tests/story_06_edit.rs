//! Story 6, the edit: a dry run with the difference, the edit, its undo, and a replay of what was edited.

mod world;

use serde_json::json;
use world::edits::{FRENCH, GERMAN, letters_are_edited_replayed_and_undone, payload};
use world::process::{Processor, stderr, stdout};
use world::stub::Stub;
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
tiers  = ["100ms", "200ms"]
jitter = "none"
timeout = "2s"
[pipeline.guard]
share  = "100%"          # all of them are to be dead
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

fn dead(processor: &Processor, messages: &[(String, String)]) {
    for (id, payload) in messages {
        let body = format!("{{\"id\":\"{id}\",\"payload\":{payload}}}");
        assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    }
    let count = messages.len();
    wait_for("all of them to be dead", || {
        processor.get("/v1/pipelines/orders").json()["letters"]["open"] == json!(count)
    });
}

#[test]
fn letters_are_edited_with_a_dry_run_replayed_and_undone() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    let messages: Vec<_> = (0..GERMAN + FRENCH).map(|n| (format!("o-{n}"), payload(n))).collect();
    dead(&processor, &messages);
    letters_are_edited_replayed_and_undone(&stub, processor, "orders");
}

#[test]
fn what_is_not_json_is_named_and_another_way_is_offered() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    // Not JSON at all, and sent as bytes. Whatever is cancelled is a letter.
    let body = json!({ "id": "raw", "payload_base64": "bm8ganNvbg==", "delay": "1h" }).to_string();
    assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    assert_eq!(processor.post("/v1/pipelines/orders/messages/raw/cancel", "").status, 200);
    wait_for("it to be dead", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == 1);
    let edited = processor.cli(&["dlq", "edit", "orders", "--all", "--set", "/amount=1"]);
    assert_eq!(edited.status.code(), Some(1), "{}{}", stdout(&edited), stderr(&edited));
    let text = stdout(&edited);
    assert!(text.starts_with("edited 0 letters\n1 not JSON, left as they are: orders/0\n"), "{text}");
    assert!(
        text.contains("redrive dlq export orders") && text.contains("redrive dlq import orders"),
        "{text}"
    );
    // Its headers can be changed all the same.
    let headers = processor.cli(&["dlq", "edit", "orders", "--all", "--set-header", "x-src=desk"]);
    assert_eq!(stdout(&headers), "edited 1 letter   edit e-1\n");
    for (args, said) in [
        (&["--all", "--set", "/amount=EUR"][..], "a text needs quotes"),
        (&["--all", "--where", "region", "--set", "/a=1"], "is not a JSON pointer"),
        (&["--set", "/a=1"], "edit needs to be told which letters"),
        (&["--all"], "it is not said what shall change"),
        (&["--all", "--set", "/a=1", "--same-id", "--new-id"], "cannot be used with"),
        (&["--ids", "raw", "--undo", "e-1"], "cannot be used with"),
        (&["--all", "--undo", "e-1"], "cannot be used with"),
        (&["--filter", "id:raw", "--undo", "e-1"], "cannot be used with"),
    ] {
        let wrong = processor.cli(&[&["dlq", "edit", "orders"], args].concat());
        assert_eq!(wrong.status.code(), Some(2), "{args:?} {}", stderr(&wrong));
        assert!(stderr(&wrong).contains(said), "{args:?} {}", stderr(&wrong));
    }
}
