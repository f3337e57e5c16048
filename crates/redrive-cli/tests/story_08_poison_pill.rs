//! Story 8, over HTTP: one order makes the service behind the webhook die. It is found by the broken connections, and
//! no other message is affected. Processes that die themselves are tested in `redrive-faults`.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use world::pill::{PILL, Scene};
use world::process::Processor;
use world::receiver::{HANG_UP, OK, Receiver};
use world::wait_for;

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

/// The receiver of one pipeline breaks connections, and is slow before it does so a third time. The other pipeline
/// continues: a broken connection says nothing about this process.
#[test]
fn a_receiver_that_takes_its_time_holds_up_no_other_pipeline() {
    let (calls, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (called, may) = (Arc::clone(&calls), Arc::clone(&go_on));
    let bad = Receiver::start(move |request| {
        if request.id() != PILL {
            return OK;
        }
        let third = called.fetch_add(1, SeqCst) + 1 >= 3;
        while third && !may.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        HANG_UP
    });
    let good = Receiver::start(|_| OK);
    let tiers = "tiers = [\"200ms\", \"300ms\", \"400ms\"]";
    let sink = format!("[pipeline.sink.webhook]\nurl = \"{}\"", bad.url());
    let both = format!("name = \"bad\"\n{tiers}\n{sink}\n[[pipeline]]\nname = \"good\"");
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &world::config("", &both, &good.url()));
    let bring = |pipeline: &str, id: &str| {
        let path = format!("/v1/pipelines/{pipeline}/messages");
        assert_eq!(processor.post(&path, &format!("{{\"id\":\"{id}\",\"payload\":1}}")).status, 202);
    };
    let succeeded =
        |pipeline: &str| processor.get(&format!("/v1/pipelines/{pipeline}")).json()["succeeded"].as_u64();
    bring("bad", PILL);
    let mut others = 0;
    wait_for("the third run", || {
        bring("bad", &format!("o-{others}"));
        others += 1;
        calls.load(SeqCst) >= 3
    });
    (0..20).for_each(|id| bring("good", &format!("g-{id}")));
    wait_for("the other pipeline", || succeeded("good") == Some(20));
    assert_eq!(calls.load(SeqCst), 3, "it is still under way");
    go_on.store(true, SeqCst);
    wait_for("the pill to be found", || processor.get("/v1/pipelines/bad").json()["letters"]["open"] == 1);
    wait_for("the others", || succeeded("bad") == Some(others));
}
