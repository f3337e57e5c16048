//! Story 13, order per customer: `ordering = "key"` with the binary, as observed by the receiver.
//!
//! Not yet: `redrive lab run ordering`, a rebalance with orders counted as voided. Story 13 on Kafka:
//! story_13_kafka.rs.

mod world;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use world::process::{Processor, stderr, stdout};
use world::receiver::{OK, Receiver, Reply, Request, UNAVAILABLE};
use world::wait_for;

const REFUSED: Reply = ("422 Unprocessable Content", "");
const MESSAGES: &str = "/v1/pipelines/orders/messages";

fn config(url: &str, more: &str) -> String {
    format!(
        r#"
[engine]
kind = "embedded"
dir  = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name     = "orders"
ordering = "key"
jitter   = "none"
{more}
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

/// `c-3/17` is the 17th message of customer c-3.
fn id(key: u32, number: u32) -> String {
    format!("c-{key}/{number}")
}

fn read_id(id: &str) -> (u32, u32) {
    let (key, number) = id.strip_prefix("c-").unwrap().split_once('/').unwrap();
    (key.parse().unwrap(), number.parse().unwrap())
}

fn post(processor: &Processor, messages: impl IntoIterator<Item = (u32, u32)>) {
    let mut lines = String::new();
    for (key, number) in messages {
        writeln!(lines, r#"{{"id":"{}","key":"c-{key}","payload":{number}}}"#, id(key, number)).unwrap();
    }
    let answer = processor.post_as(MESSAGES, "application/x-ndjson", &lines);
    assert_eq!(answer.status, 202, "{answer:?}");
}

fn status(processor: &Processor) -> Value {
    processor.get("/v1/pipelines/orders").json()
}

/// A pseudo-random number that is the same in every run.
fn drawn(id: &str, salt: u64) -> u64 {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325 ^ salt, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

/// What the receiver saw, in order.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Arrived(String),
    /// Answered with success, or with a failure that dead-letters at once.
    Ended(String),
}

/// Every later message of a key that arrived although an earlier one had not ended, and every earlier one that came
/// again after a later one.
fn out_of_order(seen: &[Seen]) -> Vec<String> {
    let mut ended: HashSet<(u32, u32)> = HashSet::new();
    let mut latest: HashMap<u32, u32> = HashMap::new();
    let mut faults = Vec::new();
    for event in seen {
        match event {
            Seen::Ended(id) => _ = ended.insert(read_id(id)),
            Seen::Arrived(id) => {
                let (key, number) = read_id(id);
                if let Some(missing) = (0..number).find(|earlier| !ended.contains(&(key, *earlier))) {
                    faults.push(format!("{id} arrived before c-{key}/{missing} had ended"));
                }
                let last = latest.entry(key).or_default();
                if *last > number {
                    faults.push(format!("{id} arrived again after c-{key}/{last}"));
                }
                *last = number.max(*last);
            }
        }
    }
    faults
}

#[test]
fn the_checker_finds_what_is_out_of_order() {
    let (arrived, ended) = (|n| Seen::Arrived(id(1, n)), |n| Seen::Ended(id(1, n)));
    let good = [arrived(0), arrived(0), ended(0), Seen::Arrived(id(2, 0)), arrived(1), ended(1)];
    assert_eq!(out_of_order(&good), Vec::<String>::new());
    assert_eq!(out_of_order(&[arrived(0), arrived(1)]), ["c-1/1 arrived before c-1/0 had ended"]);
    let again = [arrived(0), ended(0), arrived(1), arrived(0)];
    assert_eq!(out_of_order(&again), ["c-1/0 arrived again after c-1/1"]);
}

#[test]
fn with_failures_and_kill_9_no_later_message_of_a_key_arrives_before_an_earlier_one_has_ended() {
    const KEYS: u32 = 24;
    const EACH: u32 = 25;
    let dir = tempfile::tempdir().unwrap();
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let calls: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
    let (log, counted) = (Arc::clone(&seen), Arc::clone(&calls));
    // A tenth is refused for good; a third fails once or twice and then succeeds.
    let receiver = Receiver::start(move |request: &Request| {
        let id = request.id().to_owned();
        log.lock().unwrap().push(Seen::Arrived(id.clone()));
        std::thread::sleep(Duration::from_millis(drawn(&id, 1) % 12));
        let call = {
            let mut counted = counted.lock().unwrap();
            let calls = counted.entry(id.clone()).or_default();
            *calls += 1;
            *calls
        };
        let fate = drawn(&id, 2) % 30;
        if (3..13).contains(&fate) && call <= 1 + fate % 2 {
            return UNAVAILABLE;
        }
        log.lock().unwrap().push(Seen::Ended(id));
        if fate < 3 { REFUSED } else { OK }
    });
    // So many failures would open the breaker, which is not under test here.
    let more = "tiers = [\"100ms\", \"200ms\", \"400ms\"]\n[pipeline.breaker]\nenabled = false";
    let mut processor = Processor::start(dir.path(), &config(&receiver.url(), more));
    // Interleaved, so that the messages of a key lie between those of all others; in two requests.
    for half in [0..EACH / 2, EACH / 2..EACH] {
        post(&processor, half.flat_map(|number| (0..KEYS).map(move |key| (key, number))));
    }
    for share in [5, 2] {
        // At a point that depends on progress, not on the clock.
        let enough = (KEYS * EACH / share) as usize;
        wait_for("some of the messages to arrive", || seen.lock().unwrap().len() > enough);
        processor.kill();
        processor.restart();
    }
    wait_for("everything to come to its end", || {
        let pending = &status(&processor)["pending"];
        ["ready", "delayed", "held", "key_wait", "in_flight"].iter().all(|state| pending[*state] == 0)
    });

    let seen = seen.lock().unwrap();
    assert_eq!(out_of_order(&seen), Vec::<String>::new());
    let ended: HashSet<&String> =
        seen.iter().filter_map(|event| if let Seen::Ended(id) = event { Some(id) } else { None }).collect();
    assert_eq!(ended.len(), (KEYS * EACH) as usize, "every message came to its end at the receiver");
    let refused =
        (0..KEYS).flat_map(|key| (0..EACH).map(move |n| id(key, n))).filter(|id| drawn(id, 2) % 30 < 3);
    let letters = status(&processor)["letters"]["open"].clone();
    assert_eq!(letters, refused.count(), "and the refused ones are letters");
    let calls = calls.lock().unwrap();
    assert!(calls.values().any(|calls| *calls > 1), "there were failures");
}

#[test]
fn other_keys_flow_while_one_is_blocked_and_its_followers_wait_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let healthy = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&healthy);
    let receiver = Receiver::start(move |request| {
        if request.id() == id(0, 0) && !answers.load(Ordering::SeqCst) { UNAVAILABLE } else { OK }
    });
    let more = "backoff = { fixed = \"300ms\" }\nretries = 50";
    let processor = Processor::start(dir.path(), &config(&receiver.url(), more));
    post(&processor, (0..6).map(|number| (0, number)));
    wait_for("the first attempt", || !receiver.requests().is_empty());
    post(&processor, (0..20).flat_map(|number| (1..6).map(move |key| (key, number))));
    wait_for("the other keys", || status(&processor)["succeeded"] == 100);

    // The blocked key has been tried, and none of the messages behind it.
    let blocked: HashSet<String> = receiver
        .requests()
        .iter()
        .filter(|request| request.header("redrive-key") == Some("c-0"))
        .map(|request| request.id().to_owned())
        .collect();
    assert_eq!(blocked, HashSet::from([id(0, 0)]));
    assert_eq!(status(&processor)["pending"]["key_wait"], 5, "{}", status(&processor));
    let shown = stdout(&processor.cli(&["status", "orders"]));
    assert!(shown.contains("waiting for their key 5"), "{shown}");
    // Between two attempts it is due, during one it is being delivered; polling often enough sees both.
    wait_for("a look between two attempts", || {
        let shown = stdout(&processor.cli(&["status", "orders", "--key", "c-0"]));
        assert!(shown.starts_with("c-0  ") && shown.ends_with("   waiting behind it: 5\n"), "{shown}");
        shown.starts_with("c-0  blocked ")
            && shown.contains("s by c-0/0 (attempt ")
            && shown.contains(", due in 0s)")
    });
    let idle = stdout(&processor.cli(&["status", "orders", "--key", "c-3"]));
    assert_eq!(idle, "c-3  nothing of this key waits\n");

    healthy.store(true, Ordering::SeqCst);
    wait_for("the followers", || status(&processor)["succeeded"] == 106);
    let delivered: Vec<String> = receiver
        .requests()
        .iter()
        .filter(|request| request.header("redrive-key") == Some("c-0") && request.id() != id(0, 0))
        .map(|request| request.id().to_owned())
        .collect();
    assert_eq!(delivered, (1..6).map(|number| id(0, number)).collect::<Vec<_>>());
}

/// With `after_dead = "block_key"` the followers become letters of their own. One replay of the key's letters releases
/// them in order; a replay of the first letter alone does not, its followers stay letters until they are replayed too.
#[test]
fn a_dead_message_parks_its_followers_and_one_replay_releases_them_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let fixed = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&fixed);
    let receiver = Receiver::start(move |request| {
        if request.id() == id(204, 0) && !answers.load(Ordering::SeqCst) { REFUSED } else { OK }
    });
    let more = "tiers = [\"100ms\"]\nafter_dead = \"block_key\"";
    let mut processor = Processor::start(dir.path(), &config(&receiver.url(), more));
    post(&processor, [(204, 0), (204, 1), (7, 0), (204, 2), (7, 1)]);
    wait_for("the followers to be parked", || status(&processor)["letters"]["open"] == 3);
    // Later messages are parked too, even after a crash.
    processor.kill();
    processor.restart();
    post(&processor, [(204, 3), (7, 2)]);
    wait_for("the one that came later", || status(&processor)["letters"]["open"] == 4);
    let letters = |processor: &Processor| -> Vec<(String, String)> {
        let listed = processor.get("/v1/pipelines/orders/letters?state=open").json();
        let letters = listed["letters"].as_array().unwrap().iter();
        letters
            .map(|letter| {
                let text = |name: &str| letter[name].as_str().unwrap().to_owned();
                (text("message"), text("reason"))
            })
            .collect()
    };
    let parked = |number| (id(204, number), "key_blocked".to_owned());
    assert_eq!(letters(&processor), [(id(204, 0), "permanent".to_owned()), parked(1), parked(2), parked(3)],);
    let shown = stdout(&processor.cli(&["status", "orders", "--key", "c-204"]));
    assert!(shown.starts_with("c-204  blocked ") && shown.contains("s by letter orders/"), "{shown}");
    assert!(shown.ends_with(" (c-204/0, permanent)   waiting behind it: 3\n"), "{shown}");
    wait_for("the other key", || !receiver.requests_for(&id(7, 2)).is_empty());
    assert!((1..4).all(|number| receiver.requests_for(&id(204, number)).is_empty()));

    // Only the first letter: it succeeds, and its followers remain letters and still block later messages.
    fixed.store(true, Ordering::SeqCst);
    let replay = |selection: &[&str]| {
        let ran = processor.cli(&[&["dlq", "replay", "orders"], selection].concat());
        assert!(ran.status.success(), "{}{}", stdout(&ran), stderr(&ran));
    };
    replay(&["--ids", &id(204, 0)]);
    assert_eq!(letters(&processor), [parked(1), parked(2), parked(3)]);
    post(&processor, [(204, 4)]);
    wait_for("the next one to be parked", || letters(&processor).len() == 4);

    replay(&["--filter", "key:c-204"]);
    assert_eq!(letters(&processor), []);
    let delivered: Vec<String> = receiver
        .requests()
        .iter()
        .filter(|request| request.header("redrive-key") == Some("c-204"))
        .map(|request| request.id().to_owned())
        .collect();
    let in_order: Vec<String> = [0, 0, 1, 2, 3, 4].map(|number| id(204, number)).into();
    assert_eq!(delivered, in_order, "refused once, then each of them once");
    let succeeded = processor.get("/v1/pipelines/orders/letters?state=succeeded").json();
    assert_eq!(succeeded["letters"].as_array().map(Vec::len), Some(5), "{}", json!(succeeded));
}
