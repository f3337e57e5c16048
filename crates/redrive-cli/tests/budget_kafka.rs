//! The members of a group share the retry budget of a pipeline according to their partitions.
#![cfg(feature = "kafka")]

mod world;

use world::process::{Processor, stdout};
use world::receiver::{OK, Receiver};
use world::{kafka, wait_for};

const BUDGET: u64 = 60;

fn config(pipeline: &str, member: &str, url: &str) -> String {
    let lines = format!(
        r#"name   = "{pipeline}"
source = "{pipeline}"
tiers  = ["1s"]
[pipeline.budget]
retries_per_minute = {BUDGET}"#
    );
    world::config(&kafka::engine(pipeline, member), &lines, url)
}

#[test]
fn two_members_have_half_of_the_budget_each_and_one_that_is_left_has_all() {
    let orders = kafka::name("orders");
    kafka::create(&orders, 4);
    let receiver = Receiver::start(|_| OK);
    let remaining = |processor: &Processor| {
        processor.get(&format!("/v1/pipelines/{orders}")).json()["health"]["budget_remaining"]
            .as_u64()
            .unwrap()
    };
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let one = Processor::start(dirs[0].path(), &config(&orders, "one", &receiver.url()));
    assert_eq!(remaining(&one), BUDGET, "alone it has all of it");

    let mut two = Processor::start(dirs[1].path(), &config(&orders, "two", &receiver.url()));
    wait_for("each to have its half", || remaining(&one) == BUDGET / 2 && remaining(&two) == BUDGET / 2);
    let status = stdout(&one.cli(&["status", &orders]));
    assert!(status.contains("retry budget: 30 retries left now"), "{status}");
    let metrics = two.get("/metrics").body;
    assert!(metrics.contains(&format!("redrive_budget_remaining{{pipeline=\"{orders}\"}} 30")), "{metrics}");

    // Tokens come back at the rate of the whole budget.
    two.signal("TERM");
    assert_eq!(two.wait(), Some(0));
    wait_for("the other to have more than its half", || remaining(&one) > BUDGET / 2);
}
