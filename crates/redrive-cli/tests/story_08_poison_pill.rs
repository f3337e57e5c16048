//! Story 8, over HTTP: one order makes the service behind the webhook die. It is found by the connections that break, and
//! nobody else is touched. The process that dies itself is played in `redrive-faults`.

mod world;

use std::time::Duration;

use world::process::{Processor, stdout};
use world::receiver::{HANG_UP, OK, Receiver};
use world::wait_for;

#[test]
fn a_message_that_kills_its_receiver_is_found_by_three_broken_connections() {
    let receiver = Receiver::start(|request| {
        std::thread::sleep(Duration::from_millis(10));
        if request.id() == "o-88120" { HANG_UP } else { OK }
    });
    let dir = tempfile::tempdir().unwrap();
    let url = receiver.url();
    let config = format!(
        r#"
[engine]
dir = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name = "orders"
tiers = ["300ms", "400ms", "500ms"]
jitter = "none"
[pipeline.sink.webhook]
url = "{url}"
"#
    );
    let processor = Processor::start(dir.path(), &config);
    let shown = || processor.get("/v1/pipelines/orders").json();
    let ingest = |id: &str| {
        let answer =
            processor.post("/v1/pipelines/orders/messages", &format!("{{\"id\":\"{id}\",\"payload\":1}}"));
        assert_eq!(answer.status, 202, "{}", answer.body);
    };
    ingest("o-88120");
    let mut others = 0;
    wait_for("the pill to be found", || {
        // Other work goes on, and shows that the receiver is there.
        ingest(&format!("o-{others}"));
        others += 1;
        shown()["letters"]["open"] == 1
    });
    wait_for("the others", || shown()["succeeded"].as_u64() == Some(others));
    let calls = receiver.requests_for("o-88120").len();
    assert_eq!(calls, 3, "three deaths of the receiver");
    let letter = stdout(&processor.cli(&["dlq", "show", "orders", "o-88120"]));
    assert!(letter.contains("poison_pill"), "{letter}");
    assert!(letter.contains("crashes  3") && letter.contains("never replayed automatically"), "{letter}");
    assert!(letter.contains("broke off 3 times while this message ran alone"), "{letter}");
    assert!(processor.log().contains("o-88120"), "{}", processor.log());
    assert_eq!(shown()["dead"], 1);
}
