//! Story 8, over HTTP: one order makes the service behind the webhook die. It is found by the connections that break, and
//! nobody else is touched. The process that dies itself is played in `redrive-faults`.

mod world;

use world::pill::Scene;
use world::process::Processor;

#[test]
fn a_message_that_kills_its_receiver_is_found_by_three_broken_connections() {
    let bring = |processor: &Processor, id: &str| {
        let answer =
            processor.post("/v1/pipelines/orders/messages", &format!("{{\"id\":\"{id}\",\"payload\":1}}"));
        assert_eq!(answer.status, 202, "{}", answer.body);
    };
    let source = "name = \"orders\"".to_owned();
    let scene = Scene { pipeline: "orders", engine: String::new(), source, bring: &bring };
    let dir = tempfile::tempdir().unwrap();
    scene.a_pill_is_found_by_three_broken_connections(dir.path());
}
