//! A replay on Kafka that is stopped because of its latest letters, and the order of each key in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use serde_json::json;

use super::world::members::{letters, published};
use super::world::process::{stderr, stdout};
use super::world::receiver::{OK, Receiver};
use super::world::{kafka, wait_for};
use super::{lines, member};

const LETTERS: u32 = 210;
const KEYS: u32 = 7;
/// How many letters the receiver accepts before it refuses again.
const TAKEN: u32 = 40;

#[test]
fn a_replay_on_kafka_stops_above_the_share_of_the_last_fifty_and_each_key_keeps_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let (fixed, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (is_fixed, counted) = (Arc::clone(&fixed), Arc::clone(&taken));
    let receiver = Receiver::start(move |_| {
        if is_fixed.load(SeqCst) && counted.fetch_add(1, SeqCst) < TAKEN {
            return OK;
        }
        ("422 Unprocessable Entity", "")
    });
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    let text = lines(&orders, "ordering = \"key\"", "");
    let processor = member(dir.path(), "redrive-0", &orders, &text, &receiver.url());
    let order = |n: u32| (format!("c-{}", n % KEYS), json!({ "order_id": format!("o-{n}") }).to_string());
    kafka::produce(&orders, (0..LETTERS).map(order));
    wait_for("all of them to be dead", || letters(&processor, &orders)["open"] == LETTERS);
    let before = receiver.requests().len();

    fixed.store(true, SeqCst);
    let replay = ["dlq", "replay", &orders, "--all", "--rate", "100/s", "--stop-at", "20%"];
    let planned = processor.cli(&[&replay[..], &["--dry-run"]].concat());
    assert!(stdout(&planned).contains("per-key order kept"), "{}", stdout(&planned));
    let stopped = processor.cli(&replay);
    let said = stdout(&stopped);
    assert_eq!(stopped.status.code(), Some(1), "{said}{}", stderr(&stopped));
    assert!(said.contains("canary 10/10") && said.contains("✗ stopped: "), "{said}");
    assert!(said.contains(" of the last 50 failed (limit 20 %)"), "{said}");
    let replayed = published(&format!("{orders}.replay")).len() as u32;
    assert!((TAKEN + 11..LETTERS).contains(&replayed), "{replayed} were put back: {said}");
    wait_for("the rest to be open", || {
        let now = letters(&processor, &orders);
        now["succeeded"] == TAKEN && now["open"] == LETTERS - TAKEN
    });

    // The receiver got the letters of each customer in order.
    let mut of_keys: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for request in receiver.requests().iter().skip(before) {
        let number: u32 = request.id().trim_start_matches("o-").parse().unwrap();
        of_keys.entry(number % KEYS).or_default().push(number);
    }
    assert!(of_keys.len() > 1, "{of_keys:?}");
    for (key, numbers) in of_keys {
        assert!(numbers.len() > 3 && numbers.is_sorted(), "c-{key}: {numbers:?}");
        assert_eq!(numbers[0], key, "from the first one on");
    }
}
