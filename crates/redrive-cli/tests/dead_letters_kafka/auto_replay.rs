//! Automatic replay in a group: each member has a controller, one of them acts, and all report it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use serde_json::{Value, json};

use super::world::kafka::Raw;
use super::world::members::{actions, good, letters};
use super::world::process::Processor;
use super::world::receiver::{HANG_UP, OK, Receiver, UNAVAILABLE};
use super::world::{kafka, wait_for};
use super::{lines, member};

/// Messages must die in the outage, and not be held.
const KEYS: &str = "outage_gate = false";
/// More attempts than the pill needs: another message must be answered between two of them.
const TIERS: &str = r#"["200ms", "300ms", "400ms", "500ms", "600ms"]"#;
const BREAKER: &str = "[pipeline.breaker]\nenabled = false";
const AUTO: &str = "[pipeline.auto_replay]\nenabled = true\nrate = \"100/s\"\nhealthy_for = \"1s\"";
/// Letters that no replay may touch: with 422, with 410, one that breaks its receiver's connections, and two with keys.
const NEVER: u64 = 8;

/// Messages without keys.
fn produce(topic: &str, ids: impl IntoIterator<Item = String>) {
    let record = |(n, id): (usize, String)| Raw {
        partition: i32::from(n % 2 == 1),
        key: None,
        value: Some(json!({ "order_id": id }).to_string().into_bytes()),
        headers: Vec::new(),
    };
    kafka::produce_raw(topic, ids.into_iter().enumerate().map(record));
}

/// How often an action is in the log that a member shows.
fn times(processor: &Processor, pipeline: &str, action: &str) -> usize {
    actions(processor, pipeline).iter().filter(|line| line["action"] == action).count()
}

/// The jobs, latest first, each with the number of letters and how many died again.
fn jobs(processor: &Processor) -> Vec<(String, u64, u64)> {
    let listed = processor.get("/v1/replays").json();
    let job = |job: &Value| {
        assert_eq!(job["actor"], "auto-replay", "{job}");
        let number = |name: &str| job[name].as_u64().unwrap();
        (job["id"].as_str().unwrap().to_owned(), number("total"), number("dead_again"))
    };
    listed["replays"].as_array().unwrap().iter().map(job).collect()
}

#[test]
fn members_start_one_job_at_a_time_and_its_stops_are_recorded_once_for_all() {
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let receiver = Receiver::start(move |request| match request.id().split('-').next().unwrap() {
        "bad" => ("422 Unprocessable Entity", ""),
        "gone" => ("410 Gone", ""),
        "pill" => HANG_UP,
        "o" if !well.load(SeqCst) => UNAVAILABLE,
        _ => OK,
    });
    let url = receiver.url();
    let others = AtomicU32::new(0);
    // Other messages are delivered meanwhile, so that the receiver as a whole is not in an outage.
    let other = || produce(&orders, [format!("good-{}", others.fetch_add(1, SeqCst))]);
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];

    // First the letters, then the controllers, which both start at the same moment.
    let lines = |tables: &str| lines(&orders, KEYS, tables).replace(r#"["100ms", "200ms", "300ms"]"#, TIERS);
    let mut alone = member(dirs[0].path(), "redrive-0", &orders, &lines(BREAKER), &url);
    produce(&orders, ["pill-0".to_owned()]);
    wait_for("the pill to be found", || {
        other();
        letters(&alone, &orders)["open"] == 1
    });
    let pill = |processor: &Processor| -> Value {
        serde_json::from_str(&good(processor, &["dlq", "show", &orders, "pill-0", "--json"])).unwrap()
    };
    let found = pill(&alone);
    assert_eq!(found["reason"], "poison_pill", "{found}");
    let calls = receiver.requests_for("pill-0").len();
    let never = ["bad-0", "bad-1", "bad-2", "gone-0", "gone-1"].map(str::to_owned);
    produce(&orders, (0..24).map(|n| format!("o-{n}")).chain(never));
    // No member knows whether a later message of their keys has succeeded: the controllers start after they died.
    kafka::produce(
        &orders,
        ["o-k1", "o-k2"].map(|id| (id.to_owned(), json!({ "order_id": id }).to_string())),
    );
    wait_for("all of them to be dead", || {
        other();
        letters(&alone, &orders)["open"] == 24 + NEVER
    });
    let keyed_calls = ["o-k1", "o-k2"].map(|id| receiver.requests_for(id).len());
    alone.signal("TERM");
    assert_eq!(alone.wait(), Some(0));
    let with_auto = lines(&format!("{BREAKER}\n{AUTO}"));
    let members: Vec<Processor> = std::thread::scope(|scope| {
        let start = |(n, dir): (usize, &tempfile::TempDir)| {
            let (name, path) = (format!("redrive-{n}"), dir.path().to_owned());
            let (orders, lines, url) = (&orders, &with_auto, &url);
            scope.spawn(move || member(&path, &name, orders, lines, url))
        };
        let started: Vec<_> = dirs.iter().enumerate().map(start).collect();
        started.into_iter().map(|member| member.join().unwrap()).collect()
    });

    // The fix does not work: the canary stops each job, and after two of them automatic replay stops.
    wait_for("two jobs to be stopped", || {
        other();
        times(&members[0], &orders, "auto_replay_stop") == 2
    });
    // Each member shows the other job's figures shortly after it stopped. No letter is taken twice.
    let figures = |processor: &Processor| -> Vec<(u64, u64)> {
        jobs(processor).into_iter().map(|(_, total, died)| (total, died)).collect()
    };
    wait_for("what the jobs came to", || figures(&members[0]) == [(14, 10), (24, 10)]);
    let stopped = jobs(&members[0]);
    let log = actions(&members[0], &orders);
    let kinds: Vec<&str> = log.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["replay", "auto_replay_stop", "replay", "auto_replay_stop"], "{log:?}");
    assert!(log.iter().all(|line| line["actor"] == "auto-replay"), "{log:?}");
    let off = format!("; off until {} is resumed or aborted", stopped[0].0);
    assert!(log[3]["note"].as_str().unwrap().ends_with(&off), "{log:?}");
    wait_for("the other to show the same log", || actions(&members[1], &orders) == log);
    wait_for("the other to show the same jobs", || jobs(&members[1]) == stopped);

    // A decision at either member: only letters that were never tried are replayed.
    is_well.store(true, SeqCst);
    good(&members[1], &["dlq", "replays", "abort", &stopped[0].0]);
    wait_for("the rest to be delivered", || {
        other();
        letters(&members[0], &orders)["succeeded"] == 4
    });
    for processor in &members {
        wait_for("the job to be known", || times(processor, &orders, "replay") == 3);
        assert_eq!(jobs(processor).len(), 3);
        assert_eq!(times(processor, &orders, "auto_replay_stop"), 2);
    }
    assert_eq!(letters(&members[0], &orders)["open"], 20 + NEVER);
    let keyed = |id: &str| receiver.requests_for(id).len();
    assert_eq!([keyed("o-k1"), keyed("o-k2")], keyed_calls, "auto-replay cannot judge them");
    for (id, calls) in [("bad-0", 1), ("gone-0", 1), ("pill-0", calls)] {
        assert_eq!(receiver.requests_for(id).len(), calls, "{id} was never replayed");
    }
    // The record of the pill: number of crashes, the first and the last.
    let shown = pill(&members[1]);
    assert_eq!(shown["crashes"], 3, "{shown}");
    let time = |name: &str| shown[name].as_str().unwrap_or_else(|| panic!("{name}: {shown}")).to_owned();
    assert!(time("first_crash") < time("last_crash"), "{shown}");
    assert_eq!((&shown["state"], &shown["replays"]), (&json!("open"), &json!(0)));
}
