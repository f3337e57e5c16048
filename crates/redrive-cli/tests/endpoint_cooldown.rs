//! Waiting endpoints on the embedded engine: shown by `status` and the API, across a kill.

mod world;

use std::ops::Range;

use world::cooldown::Scene;
use world::process::{Processor, stdout};
use world::receiver::{OK, Receiver, UNAVAILABLE};
use world::wait_for;

fn ingest(processor: &Processor, ids: Range<usize>, url: &str) {
    let line = |id| format!("{{\"id\":\"o-{id}\",\"payload\":{{\"url\":\"{url}\"}}}}\n");
    let lines: String = ids.map(line).collect();
    let answer = processor.post_as("/v1/pipelines/hooks/messages", "application/x-ndjson", &lines);
    assert_eq!(answer.status, 202, "{}", answer.body);
}

#[test]
fn an_endpoint_in_cooldown_is_shown_and_stays_in_cooldown_over_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let source = "name = \"hooks\"".to_owned();
    let scene = Scene { pipeline: "hooks", engine: String::new(), source, bring: &ingest };
    scene.an_endpoint_in_cooldown_is_shown_and_stays_in_cooldown_over_a_kill(dir.path());
}

/// With `limit_by` the unit is the customer, and is named so.
#[test]
fn a_tenant_in_cooldown_is_called_a_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|request| if request.body.contains("acme") { UNAVAILABLE } else { OK });
    let config = format!(
        r#"
[engine]
dir = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name = "hooks"
tenant = "json:/tenant"
tiers = ["100ms", "200ms", "400ms"]
[pipeline.breaker]
cooldown = "1h"
cooldown_max = "1h"
[pipeline.breaker.fast]
window = "1h"
min = 5
[pipeline.sink.webhook]
url = "{}"
limit_by = "tenant"
"#,
        receiver.url()
    );
    let processor = Processor::start(dir.path(), &config);
    let line = |id: usize| {
        let tenant = if id.is_multiple_of(2) { "acme".to_owned() } else { format!("other{id}") };
        format!("{{\"id\":\"o-{id}\",\"payload\":{{\"tenant\":\"{tenant}\"}}}}\n")
    };
    let lines: String = (0..40).map(line).collect();
    let answer = processor.post_as("/v1/pipelines/hooks/messages", "application/x-ndjson", &lines);
    assert_eq!(answer.status, 202, "{}", answer.body);
    let endpoints = || processor.get("/v1/pipelines/hooks").json()["health"]["endpoints"].clone();
    wait_for("the breaker of the tenant", || endpoints()["in_cooldown"] == 1);
    let shown = endpoints();
    assert_eq!((&shown["unit"], &shown["waits"][0]["unit"]), (&"tenant".into(), &"tenant".into()), "{shown}");
    let status = stdout(&processor.cli(&["status", "hooks"]));
    assert!(status.contains("1 tenant in cooldown"), "{status}");
    assert!(status.contains("  tenant ") && !status.contains("endpoint"), "{status}");
}
