//! `profile = "payments"` over HTTP: its budget dead-letters nothing in an outage, and holds in a healthy sink.

mod world;

use world::payments::Scene;
use world::process::Processor;

fn ingest(processor: &Processor, ids: std::ops::Range<usize>) {
    let lines: Vec<String> = ids.map(|id| format!("{{\"id\":\"o-{id}\",\"payload\":{id}}}\n")).collect();
    let lines = lines.concat();
    let answer = processor.post_as("/v1/pipelines/pay/messages", "application/x-ndjson", &lines);
    assert_eq!(answer.status, 202, "{}", answer.body);
}

fn scene() -> Scene<'static> {
    Scene { pipeline: "pay", engine: String::new(), source: "name = \"pay\"".to_owned(), bring: &ingest }
}

#[test]
fn an_outage_makes_no_letters() {
    scene().an_outage_makes_no_letters(tempfile::tempdir().unwrap().path());
}

#[test]
fn a_healthy_sink_gets_no_more_retries_than_the_budget() {
    scene().a_healthy_sink_gets_no_more_retries_than_the_budget(tempfile::tempdir().unwrap().path());
}
