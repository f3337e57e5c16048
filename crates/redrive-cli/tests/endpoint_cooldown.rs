//! Endpoints that wait, on the embedded engine: shown by `status` and the API, and over a kill.

mod world;

use std::ops::Range;

use world::cooldown::Scene;
use world::process::Processor;

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
