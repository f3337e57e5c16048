//! Decisions that expire, compaction of resolved letters, and letters that retention discards, on Kafka.

use rdkafka::Message as _;
use rdkafka::message::Headers as _;
use redrive_kafka::letters::KafkaLetters;
use serde_json::{Value, json};

use super::world::kafka::Raw;
use super::world::members::{config_of, good, join, letters, published, with_letters};
use super::world::process::Processor;
use super::world::{kafka, wait_for};

fn refused(n: u64) -> (String, String) {
    ("c-6".to_owned(), json!({ "order_id": format!("o-{n}"), "amount": -1 }).to_string())
}

#[test]
fn a_snooze_ends_by_number_and_by_time_at_the_other_member() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, first, orders) = with_letters(dir.path(), 7);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, 7);
    let groups = first.get(&format!("/v1/pipelines/{orders}/groups")).json();
    let group = groups["groups"][0]["id"].as_str().unwrap();
    let seen = |processor: &Processor| -> Value {
        let listed = processor.get(&format!("/v1/pipelines/{orders}/groups")).json();
        let mut groups = listed["groups"].as_array().unwrap().iter();
        groups.find(|one| one["id"] == group).cloned().unwrap_or_default()
    };

    let decided = good(&first, &["dlq", "groups", &orders, group, "--snooze-more", "2"]);
    assert!(decided.contains("state snoozed"), "{decided}");
    wait_for("the other to know of it", || seen(&second)["state"] == "snoozed");
    kafka::produce(&orders, [refused(100)]);
    wait_for("one more letter", || seen(&second)["open"] == 8);
    assert_eq!(seen(&second)["state"], "snoozed", "one more is not enough");
    kafka::produce(&orders, [refused(101)]);
    wait_for("the snooze to end at both", || {
        seen(&second)["state"] == "open" && seen(&first)["state"] == "open"
    });

    let decided = good(&second, &["dlq", "groups", &orders, group, "--snooze", "3s"]);
    assert!(decided.contains("state snoozed"), "{decided}");
    wait_for("the first to know until when", || seen(&first)["until"].is_string());
    wait_for("the snooze to end at both", || {
        seen(&second)["state"] == "open" && seen(&first)["state"] == "open"
    });
}

fn hours_ago(hours: u64) -> redrive::Time {
    let now = redrive::Time::from(std::time::SystemTime::now());
    redrive::Time::from_millis(now.as_millis() - hours * 3_600_000)
}

/// Records, as a member does, that letters were replayed two hours ago.
fn succeeded_long_ago(orders: &str, letters: &[Value]) {
    let record = |letter: &Value| {
        let place = letter["id"].as_str().unwrap().strip_prefix(orders).unwrap();
        let (partition, offset) = place.trim_start_matches('/').split_once('/').unwrap();
        let (partition, offset): (i32, u64) = (partition.parse().unwrap(), offset.parse().unwrap());
        let number = (partition as u64) << 48 | offset;
        let (key, value) = KafkaLetters::succeeded_state(number, 1, Some(7), hours_ago(2));
        Raw { partition, key: Some(key.into_bytes()), value: Some(value), headers: Vec::new() }
    };
    kafka::produce_raw(&format!("{orders}.DLQ.state"), letters.iter().map(record));
}

/// Copies of the first letter of the topic that died three days ago.
fn old_letters(orders: &str, count: u64) {
    let dlq = format!("{orders}.DLQ");
    let mut first = None;
    kafka::read(&dlq, |record| {
        let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
        let headers = headers.map(|one| (one.key.to_owned(), one.value.unwrap_or_default().to_vec()));
        first.get_or_insert_with(|| (record.partition(), headers.collect::<Vec<_>>()));
    });
    let (partition, headers) = first.unwrap();
    let old = |n: u64| {
        let changed = |name: &str, value: Vec<u8>| match name {
            "x-orig-offset" => (1_000 + n).to_string().into_bytes(),
            "x-message-id" => format!("old-{n}").into_bytes(),
            "x-dead-at" => hours_ago(72).as_millis().to_string().into_bytes(),
            _ => value,
        };
        let headers = headers.iter().map(|(name, value)| (name.clone(), changed(name, value.clone())));
        let value = Some(json!({ "order_id": format!("old-{n}"), "amount": -1 }).to_string().into_bytes());
        Raw { partition, key: Some(b"c-0".to_vec()), value, headers: headers.collect() }
    };
    kafka::produce_raw(&dlq, (0..count).map(old));
}

/// Letters resolved long ago are removed from the topic on request, even between open ones; and old open letters are
/// discarded by retention, which counts them.
#[test]
fn letters_that_are_done_leave_the_topic_and_old_ones_are_counted_as_expired() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, processor, orders) = with_letters(dir.path(), 14);
    let nothing = good(&processor, &["dlq", "compact", &orders]);
    assert!(nothing.starts_with("deleted 0 records"), "{nothing}");
    let page = processor.get(&format!("/v1/pipelines/{orders}/letters?limit=100")).json();
    let mut done = page["letters"].as_array().unwrap().clone();
    done.retain(|letter| letter["key"] != "c-6");
    assert_eq!(done.len(), 12);
    succeeded_long_ago(&orders, &done);
    wait_for("the successes to be known", || letters(&processor, &orders)["succeeded"] == 12);
    let said = good(&processor, &["dlq", "compact", &orders]);
    let deleted: u64 = said.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((12..=14).contains(&deleted), "open ones that were written again are counted too: {said}");
    let left =
        || -> Vec<String> { published(&format!("{orders}.DLQ")).into_keys().map(|(id, _)| id).collect() };
    assert_eq!(left(), ["o-13", "o-6"], "the open ones stay");
    let now = letters(&processor, &orders);
    assert_eq!((&now["open"], &now["succeeded"]), (&json!(2), &json!(0)), "{now}");
    good(&processor, &["dlq", "show", &orders, "o-6"]);

    // The sweep at the next start takes only letters that died long ago.
    old_letters(&orders, 3);
    wait_for("the old letters", || letters(&processor, &orders)["open"] == 5);
    let metric = format!("redrive_letters_expired_total{{pipeline=\"{orders}\"}}");
    let expired = |processor: &Processor| {
        let metrics = processor.get("/metrics").body;
        metrics.lines().find_map(|line| line.strip_prefix(&metric).map(|rest| rest.trim().to_owned()))
    };
    drop(processor);
    // Two members that start at the same moment: each sweeps, and one of them finds something.
    let elsewhere = tempfile::tempdir().unwrap();
    let keeping = |member: &str| {
        let text = config_of(member, &orders, &stub.url);
        text.replace("jitter =", "letter_retention = \"1d\"\njitter =")
    };
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| Processor::start(dir.path(), &keeping("redrive-0")));
        let two = Processor::start(elsewhere.path(), &keeping("redrive-1"));
        (one.join().unwrap(), two)
    });
    let counted = || {
        let of = |member: &Processor| expired(member).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        of(&one) + of(&two)
    };
    wait_for("the old ones to be counted", || counted() >= 3);
    for member in [&one, &two] {
        wait_for("each to know it", || letters(member, &orders)["discarded"] == 3);
        let now = letters(member, &orders);
        assert_eq!((&now["open"], &now["discarded"]), (&json!(2), &json!(3)), "{now}");
    }
    // The later member waits until the first has been silent for a while, and has swept by then.
    std::thread::sleep(std::time::Duration::from_secs(25));
    assert_eq!(counted(), 3);
    let listed = good(&one, &["audit", &orders, "--actions", "--json"]);
    let by_retention = listed.lines().filter(|line| line.contains("\"actor\":\"retention\"")).count();
    assert_eq!(by_retention, 1, "{listed}");
}
