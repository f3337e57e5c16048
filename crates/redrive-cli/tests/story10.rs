//! Story 10: a configuration mistake. Every fault in one run, with its location, exit code 2.

mod support;

use support::{redrive, with_config};

/// Line 14 has the tiers, 15 the unknown key, 16 the retries, 2 and 31 the names, as in the story.
const MISTAKES: &str = r#"[[pipeline]]
name = "orders"
id = "json:/order_id"

[pipeline.sink.webhook]
url = "http://127.0.0.1:8000/orders"

[[pipeline]]
name = "push"
profile = "push"
crash = { threshold = 3, window = "20s" }
sink = { webhook = { url = "http://127.0.0.1:8000/push" } }
[[pipeline]]
tiers = ["30s", "5s", "5m"]
max_retry = 5
retries = 5

# What follows is right, except for the name at the end.
jitter = "equal"
ordering = "none"
classify = "on"
mode = "non-blocking"
concurrency = 64
timeout = "10s"
hold_max = "24h"
dedup = "24h"
max_pending = 0
outage_gate = true
retry_after_max = "24h"
retry_after_jitter = "10%"
name = "orders"

[pipeline.sink.webhook]
url = "http://127.0.0.1:8000/orders"
"#;

const REPORT: &str = r#"error: pipeline `orders`: `tiers` must grow
  ┌ redrive.toml:14
14│ tiers = ["30s", "5s", "5m"]
  │                 ^^^^ 5s comes after 30s
  fix: tiers = ["5s", "30s", "5m"]

error: pipeline `orders`: unknown key `max_retry`; did you mean `retries`?              redrive.toml:15
error: pipeline `orders`: both `retries = 5` and 3 tiers are set; 3 tiers allow at most 3 retries    redrive.toml:16
error: two pipelines are named `orders`; give one another `name`                        redrive.toml:2,31
warning: pipeline `push`: longest delay 32s, but the crash window is 20s: a crash loop would never be seen
4 errors, 1 warning. Nothing was started, no topic was touched.
"#;

#[test]
fn every_fault_is_told_in_one_run_with_its_place() {
    let dir = with_config(MISTAKES);
    for command in [&["check"][..], &["config", "check"], &["config", "show"]] {
        let ran = redrive(dir.path(), command);
        assert_eq!(ran.stderr, REPORT, "{command:?}");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{command:?}");
    }
}

#[test]
fn as_json_every_fault_has_its_line_key_and_fix() {
    let dir = with_config(MISTAKES);
    let ran = redrive(dir.path(), &["check", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), ""));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((report["errors"].as_u64(), report["warnings"].as_u64()), (Some(4), Some(1)));
    let tiers = &report["faults"][0];
    assert_eq!(tiers["line"], 14);
    assert_eq!(tiers["column"], 17);
    assert_eq!(tiers["key"], "tiers");
    assert_eq!(tiers["problem"], "`tiers` must grow: 5s comes after 30s");
    assert_eq!(tiers["fix"], "tiers = [\"5s\", \"30s\", \"5m\"]");
}

#[test]
fn the_same_file_without_its_mistakes_passes() {
    let right = MISTAKES
        .replace("[\"30s\", \"5s\", \"5m\"]", "[\"5s\", \"30s\", \"5m\"]")
        .replace("max_retry = 5\n", "")
        .replace("retries = 5\n", "retries = 3\n")
        .replace(
            "outage_gate = true\nretry_after_max = \"24h\"\nretry_after_jitter = \"10%\"\nname = \"orders\"",
            "name = \"orders-2\"",
        )
        .replace("window = \"20s\"", "window = \"5m\"");
    let dir = with_config(&right);
    let ran = redrive(dir.path(), &["config", "check"]);
    assert_eq!(ran.stdout, "✓ redrive.toml: 3 pipelines, no errors\n");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}
