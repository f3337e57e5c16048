//! What a pipeline redacts, on Kafka: hidden everywhere, but delivered unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::world::kafka::{self, Raw};
use super::world::members::{good, letters};
use super::world::receiver::{OK, Receiver};
use super::world::wait_for;
use super::{lines, member};

const EMAIL: &str = "erika.mustermann@example.com";
const USER: &str = "Erika M.";

#[test]
fn what_a_pipeline_on_kafka_redacts_is_shown_nowhere_and_delivered_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let fixed = Arc::new(AtomicBool::new(false));
    let is_fixed = Arc::clone(&fixed);
    // The receiver quotes the value it refuses.
    let refused = ("422 Unprocessable Entity", "redrive-reason: refused-erika.mustermann%40example.com\r\n");
    let receiver = Receiver::start(move |_| if is_fixed.load(SeqCst) { OK } else { refused });
    let orders = kafka::name("orders");
    kafka::create(&orders, 1);
    let payload = format!(r#"{{"order_id":"o-1","email":"{EMAIL}","big":12345678901234567890.10}}"#);
    kafka::produce_raw(
        &orders,
        [Raw {
            partition: 0,
            key: Some(EMAIL.as_bytes().to_vec()),
            value: Some(payload.clone().into_bytes()),
            headers: vec![("x-user".to_owned(), USER.as_bytes().to_vec())],
        }],
    );
    let text = lines(&orders, "redact = [\"/email\", \"header:x-user\"]", "");
    let processor = member(dir.path(), "redrive-0", &orders, &text, &receiver.url());
    wait_for("the letter", || letters(&processor, &orders)["open"] == 1);
    let hidden = |what: &str, text: &str| {
        let text = text.to_lowercase();
        assert!(!text.contains("mustermann") && !text.contains("erika m."), "{what}: {text}");
    };
    let groups = processor.get(&format!("/v1/pipelines/{orders}/groups")).json();
    let group = groups["groups"][0]["id"].as_str().unwrap();
    for path in ["", "/letters?payload=true", "/letters/o-1", "/messages/o-1", &format!("/groups/{group}")] {
        let shown = processor.get(&format!("/v1/pipelines/{orders}{path}"));
        assert_eq!(shown.status, 200, "{path} {}", shown.json());
        hidden(path, &shown.json().to_string());
    }
    for command in [
        &["dlq", "export", &orders][..],
        &["dlq", "show", &orders, "o-1"],
        &["dlq", "inspect", &orders],
        &["dlq", "groups", &orders, group],
        &["dlq", "edit", &orders, "--all", "--set", "/email=\"n\"", "--dry-run"],
    ] {
        hidden(&command.join(" "), &good(&processor, command));
    }
    let exported = good(&processor, &["dlq", "export", &orders]);
    assert!(exported.contains("[redacted]") && exported.contains("12345678901234567890.10"), "{exported}");

    fixed.store(true, SeqCst);
    good(&processor, &["dlq", "replay", &orders, "--all"]);
    let requests = receiver.requests_for("o-1");
    assert_eq!(requests.last().unwrap().body, payload, "as it came in");
    hidden("the log", &processor.log());
}
