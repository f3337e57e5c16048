//! Story 13 on Kafka: no later message of a key starts before an earlier one has ended, through failures and a kill.
#![cfg(feature = "kafka")]

mod world;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use world::process::Processor;
use world::receiver::{OK, Receiver, Reply, UNAVAILABLE};
use world::{kafka, wait_for};

const REFUSED: Reply = ("422 Unprocessable Content", "");
const KEYS: u32 = 12;
const EACH: u32 = 15;

fn config(pipeline: &str, url: &str) -> String {
    let lines = format!(
        r#"source   = "{pipeline}"
id       = "json:/id"
ordering = "key"
jitter   = "none"
tiers    = ["100ms", "300ms", "500ms"]"#
    );
    world::config(&kafka::engine(&format!("{pipeline}-delivery"), "redrive-0"), &lines, url)
}

/// What the receiver saw, in order: `(key, number, whether this ended it)`.
type Seen = Arc<Mutex<Vec<(u32, u32, bool)>>>;

/// Fails depending on the id: one in three once or twice, one in forty for good.
fn flaky(seen: &Seen) -> Receiver {
    let seen = Arc::clone(seen);
    let calls: Mutex<HashMap<String, u32>> = Mutex::default();
    Receiver::start(move |request| {
        let (key, number) = request.id().split_once('/').unwrap();
        let (key, number): (u32, u32) = (key.parse().unwrap(), number.parse().unwrap());
        let mut calls = calls.lock().unwrap();
        let call = calls.entry(request.id().to_owned()).and_modify(|call| *call += 1).or_insert(1);
        let draw = (key * 31 + number * 17) % 120;
        let reply = match draw {
            0..3 => REFUSED,
            3..40 if *call <= 1 + draw % 2 => UNAVAILABLE,
            _ => OK,
        };
        seen.lock().unwrap().push((key, number, reply != UNAVAILABLE));
        reply
    })
}

/// Messages that arrived although an earlier one of their key had not ended. Repeats after a kill are allowed, since
/// the message had ended before.
fn overtakers(seen: &[(u32, u32, bool)]) -> Vec<String> {
    let mut ended: HashSet<(u32, u32)> = HashSet::new();
    let mut faults = Vec::new();
    for (key, number, ends) in seen {
        if let Some(earlier) = (0..*number).find(|earlier| !ended.contains(&(*key, *earlier))) {
            faults.push(format!("{key}/{number} arrived before {key}/{earlier} had ended"));
        }
        if *ends {
            ended.insert((*key, *number));
        }
    }
    faults
}

fn produce(topic: &str) {
    let all = (0..EACH).flat_map(|number| (0..KEYS).map(move |key| (key, number)));
    kafka::produce(
        topic,
        all.map(|(key, number)| (format!("c-{key}"), json!({"id": format!("{key}/{number}")}).to_string())),
    );
}

fn ended(processor: &Processor, pipeline: &str) -> bool {
    let view: Value = processor.get(&format!("/v1/pipelines/{pipeline}")).json();
    let pending = &view["pending"];
    ["ready", "delayed", "held", "key_wait", "in_flight"].iter().all(|state| pending[*state] == 0)
}

fn all_ended(seen: &Seen) -> bool {
    let ended: HashSet<_> =
        seen.lock().unwrap().iter().filter(|one| one.2).map(|one| (one.0, one.1)).collect();
    ended.len() == (KEYS * EACH) as usize
}

#[test]
fn the_checker_finds_who_overtook() {
    assert_eq!(overtakers(&[(1, 0, false), (1, 0, true), (2, 0, true), (1, 1, true), (1, 0, true)]), [""; 0]);
    assert_eq!(overtakers(&[(1, 0, false), (1, 1, true)]), ["1/1 arrived before 1/0 had ended"]);
}

#[test]
fn no_message_overtakes_an_earlier_one_of_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Seen::default();
    let receiver = flaky(&seen);
    let orders = kafka::name("orders");
    kafka::create(&orders, 3);
    produce(&orders);
    let processor = Processor::start(dir.path(), &config(&orders, &receiver.url()));
    wait_for("all to have ended", || all_ended(&seen) && ended(&processor, &orders));
    let seen = seen.lock().unwrap().clone();
    assert_eq!(overtakers(&seen), [""; 0]);
    assert!(seen.iter().any(|(_, _, ends)| !ends), "nothing failed, so nothing was shown");
}

#[test]
fn not_even_after_kill_9_since_the_lines_are_rebuilt_from_the_tiers() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Seen::default();
    let receiver = flaky(&seen);
    let orders = kafka::name("orders");
    kafka::create(&orders, 3);
    produce(&orders);
    let mut processor = Processor::start(dir.path(), &config(&orders, &receiver.url()));
    for part in 1..=3 {
        wait_for("some of it", || seen.lock().unwrap().len() >= (KEYS * EACH) as usize * part / 4);
        processor.kill();
        processor.restart();
    }
    wait_for("all to have ended", || all_ended(&seen) && ended(&processor, &orders));
    assert_eq!(overtakers(&seen.lock().unwrap()), [""; 0]);
}
