//! On Kafka an operator's actions on dead letters belong to the group: any member shows and undoes them, and they
//! survive `kill -9` of the member that took the request.
//!
//! `REDRIVE_KAFKA_REPLAY_KILLS` says how many members are killed while they run a replay job.
#![cfg(feature = "kafka")]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rdkafka::Message as _;
use serde_json::{Value, json};
use world::kafka::TopicFollower;
use world::members::{actions, good, join, letters, published, with_letters};
use world::process::{Processor, redrive};
use world::{kafka, wait_for};

fn kinds(actions: &[Value]) -> Vec<&str> {
    actions.iter().map(|line| line["action"].as_str().unwrap()).collect()
}

#[test]
fn a_discard_and_a_decision_are_seen_and_taken_back_after_the_member_that_took_them_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut first, orders) = with_letters(dir.path(), 14);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, 14);

    let discard = ["dlq", "discard", &orders, "--filter", "key:c-1", "--reason", "closed", "--json"];
    let said: Value = serde_json::from_str(&good(&first, &discard)).unwrap();
    let discard = said["id"].as_str().unwrap();
    let groups: Value = serde_json::from_str(&good(&first, &["dlq", "groups", &orders, "--json"])).unwrap();
    let group = groups["groups"][0]["id"].as_str().unwrap();
    good(&first, &["dlq", "groups", &orders, group, "--acknowledge", "--note", "with the shop"]);
    first.kill();

    // The other member has the log, the decision with its note, and the letters of the discard.
    assert_eq!(kinds(&actions(&second, &orders)), ["discard", "group_acknowledge"]);
    let shown = second.get(&format!("/v1/pipelines/{orders}/groups/{group}")).json().to_string();
    assert!(shown.contains("acknowledged") && shown.contains("with the shop"), "{shown}");
    wait_for("the discard to be known", || letters(&second, &orders)["discarded"] == 2);
    assert_eq!(good(&second, &["dlq", "undo", &orders, discard]), "restored 2   (open again)\n");
    good(&second, &["dlq", "groups", &orders, group, "--resolve"]);

    // The first member comes back and shows the same log; the undo is not undone.
    first.restart();
    wait_for("the first to know the undo", || letters(&first, &orders)["open"] == 14);
    let log = actions(&second, &orders);
    assert_eq!(kinds(&log), ["discard", "group_acknowledge", "undo", "group_resolve"]);
    wait_for("both to show the same log", || actions(&first, &orders) == log);
    let repeated = good(&first, &["dlq", "undo", &orders, discard]);
    assert!(repeated.starts_with("restored 0   (undone already, at "), "{repeated}");
    // A later discard keeps its letters when the earlier one is undone.
    let again = ["dlq", "discard", &orders, "--filter", "key:c-1", "--reason", "closed", "--json"];
    good(&second, &again);
    wait_for("the later discard to be known", || letters(&first, &orders)["discarded"] == 2);
    let repeated = good(&first, &["dlq", "undo", &orders, discard]);
    assert!(repeated.starts_with("restored 0   (undone already, at "), "{repeated}");
}

/// The record of a discard lists its letters, so another member finishes it.
#[test]
fn a_discard_whose_member_is_killed_in_the_middle_is_finished_by_another() {
    let count = 2_500;
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut first, orders) = with_letters(dir.path(), count);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, count);
    let discarded = || letters(&second, &orders)["discarded"].as_u64().unwrap();
    let mut command = redrive(dir.path());
    command.args([
        "--url",
        &first.url(""),
        "dlq",
        "discard",
        &orders,
        "--filter",
        "attempts:>=1",
        "--reason",
        "x",
    ]);
    let mut asked = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the first letters to be discarded", || discarded() > 0);
    first.kill();
    let at_the_kill = discarded();
    asked.wait().unwrap();
    wait_for("all of them to be discarded", || discarded() == count);
    println!("{at_the_kill} of {count} letters were discarded when the member was killed");
    let log = actions(&second, &orders);
    assert_eq!(kinds(&log), ["discard"], "done once");
    let undone = good(&second, &["dlq", "undo", &orders, log[0]["id"].as_str().unwrap()]);
    assert_eq!(undone, "restored 2,500   (open again)\n");
}

/// The record of an erasure lists its letters, so another member finishes it and reports what was done.
#[test]
fn an_erasure_whose_member_is_killed_in_the_middle_is_finished_by_another_and_its_record_is_true() {
    let count = 2_500;
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut first, orders) = with_letters(dir.path(), count);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, count);
    let erased = || letters(&second, &orders)["erased"].as_u64().unwrap();
    let mut command = redrive(dir.path());
    let selection = ["--filter", "attempts:>=1", "--reason", "ticket 881"];
    command.args(["--url", &first.url(""), "dlq", "erase", &orders]).args(selection);
    let mut asked = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the first letters to be erased", || erased() > 0);
    first.kill();
    let at_the_kill = erased();
    asked.wait().unwrap();
    wait_for("all of them to be erased", || erased() == count);
    println!("{at_the_kill} of {count} letters were erased when the member was killed");
    wait_for("the record to be whole", || actions(&second, &orders)[0].get("unfinished").is_none());
    let log = actions(&second, &orders);
    assert_eq!(kinds(&log), ["erase"], "listed once");
    assert_eq!((&log[0]["letters"], &log[0]["note"]), (&json!(count), &json!("ticket 881")), "{log:?}");
    // The first member comes back and shows the same.
    first.restart();
    wait_for("both to show the same log", || actions(&first, &orders) == log);
}

/// The record of an edit names the letters that have it, not those planned when its member was killed.
#[test]
fn an_edit_whose_member_is_killed_in_the_middle_is_recorded_by_another_with_the_letters_that_have_it() {
    let count = 2_500;
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut first, orders) = with_letters(dir.path(), count);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, count);
    let json = |processor: &Processor, args: &[&str]| -> Value {
        serde_json::from_str(&good(processor, &[args, &["--json"]].concat())).unwrap()
    };
    // The other member has its own edit with the same number.
    let own = json(&second, &["dlq", "edit", &orders, "--ids", "o-0", "--set-header", "x-seen=yes"]);
    let edit = ["dlq", "edit", &orders, "--filter", "attempts:>=1", "--set", "/amount=5"];
    let planned = json(&first, &[&edit[..], &["--dry-run"]].concat());
    let name = planned["edit"].as_str().unwrap();
    let edited = || {
        let found = second.get(&format!("/v1/pipelines/{orders}/letters?filter=edit:{name}&limit=1"));
        !found.json()["letters"].as_array().unwrap().is_empty()
    };
    let mut command = redrive(dir.path());
    command.args(["--url", &first.url("")]).args(edit);
    let mut asked = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the first letters to be edited", edited);
    first.kill();
    asked.wait().unwrap();

    let recorded = || {
        let log = actions(&second, &orders);
        log.into_iter().filter(|line| line["id"] == name).collect::<Vec<Value>>()
    };
    wait_for("the record of what was planned", || recorded().iter().any(|line| line["unfinished"] == true));
    assert_eq!(recorded()[0]["letters"], count);
    wait_for("the record to be whole", || recorded()[0].get("unfinished").is_none());
    let lines = recorded();
    assert_eq!(kinds(&lines), ["edit"], "listed once");
    let line = &lines[0];
    println!("{} of {count} letters were edited when the member was killed", line["letters"]);
    assert!((1..count).contains(&line["letters"].as_u64().unwrap()), "{line}");
    assert_eq!((&line["note"], &line["fields"]), (&json!("2,500 planned"), &json!(["/amount"])), "{line}");

    // Exactly the letters with the edit are in the record; and the other member's own edit is unaffected.
    let undone = json(&second, &["dlq", "edit", "--undo", name]);
    assert_eq!((&undone["restored"], &undone["skipped"]), (&line["letters"], &json!(0)), "{undone}");
    assert!(!edited(), "a letter has an edit that the record does not name");
    let undone = json(&second, &["dlq", "edit", "--undo", own["edit"].as_str().unwrap()]);
    assert_eq!(undone["restored"], 1, "{undone}");
    // The first member comes back and shows the same.
    first.restart();
    wait_for("both to show the same log", || actions(&first, &orders) == actions(&second, &orders));
}

/// A letter waiting in a job is sent with its latest edit, whichever member edits it and whichever runs the job.
#[test]
fn an_edit_at_one_member_changes_what_a_job_of_another_has_not_put_back_yet() {
    let count = 40;
    let dir = tempfile::tempdir().unwrap();
    let (stub, first, orders) = with_letters(dir.path(), count);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, count);
    stub.fix();
    good(&first, &["dlq", "replay", &orders, "--all", "--rate", "4/s", "--canary", "0", "--detach"]);
    let name = first.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    let job = || first.get(&format!("/v1/replays/{name}")).json();
    wait_for("some of them to be put back", || job()["published"].as_u64() >= Some(5));
    let edit = ["dlq", "edit", &orders, "--filter", "attempts:>=1", "--set", "/amount=5", "--json"];
    let done: Value = serde_json::from_str(&good(&second, &edit)).unwrap();
    assert_eq!(job()["state"], "running", "the job is long enough");
    wait_for("the job to come to its end", || job()["state"] == "done");
    assert_eq!(job()["succeeded"], count, "{}", job());

    let filter = format!("filter=edit:{}&limit=100", done["edit"].as_str().unwrap());
    let found = second.get(&format!("/v1/pipelines/{orders}/letters?{filter}")).json();
    let edited: BTreeSet<&str> =
        found["letters"].as_array().unwrap().iter().map(|one| one["message"].as_str().unwrap()).collect();
    assert_eq!(done["edited"], edited.len(), "{done} {found}");
    assert!((1..count as usize).contains(&edited.len()), "{edited:?}");
    let mut went: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    kafka::read(&format!("{orders}.replay"), |record| {
        let payload = String::from_utf8_lossy(record.payload().unwrap_or_default()).into_owned();
        let id = kafka::header(record, "x-message-id").unwrap_or_default();
        went.entry(id).or_default().push(payload.contains("\"amount\":5"));
    });
    assert_eq!(went.len() as u64, count);
    for (id, went) in went {
        assert_eq!(went, [edited.contains(id.as_str())], "{id} goes once, and as it is");
    }
}

/// An earlier version wrote tenant names into the records of jobs, where an erasure does not find them.
#[test]
fn the_record_of_an_older_job_is_written_again_without_its_tenants_and_the_job_is_carried_on() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, processor, orders) = with_letters(dir.path(), 21);
    stub.fix();
    // The fixture's letters are the first three of the first partition.
    let fixture = include_str!("../../redrive/tests/fixtures/replay-job-naming-tenants.json");
    let mut job: Value = serde_json::from_str(fixture).unwrap();
    (job["pipeline"], job["runner"], job["beat"]) = (json!(orders), json!("zzzzz"), json!(4));
    let record = |id: &str, state: &str| {
        let mut job = job.clone();
        (job["id"], job["name"], job["state"]) = (json!(id), json!(id), json!(state));
        (format!("replay/{id}/job"), job.to_string())
    };
    let selection = ("replay/r-zzzzz-7/ids/000000".to_owned(), "\u{0}\u{2}\u{2}".to_owned());
    let control = format!("{orders}.control");
    kafka::produce(&control, [selection, record("r-zzzzz-7", "running"), record("r-zzzzz-6", "done")]);
    wait_for("the job to be carried on", || processor.get("/v1/replays/r-zzzzz-7").json()["state"] == "done");
    let done = processor.get("/v1/replays/r-zzzzz-7").json();
    assert_eq!((&done["published"], &done["succeeded"]), (&json!(3), &json!(3)), "{done}");
    wait_for("both records to be written again", || {
        let mut last: BTreeMap<String, String> = BTreeMap::new();
        kafka::read(&control, |record| {
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
            last.insert(text(record.key()), text(record.payload()));
        });
        let written = |id: &str| &last[&format!("replay/{id}/job")];
        ["r-zzzzz-6", "r-zzzzz-7"].iter().all(|id| {
            let text = written(id);
            text.contains("\"state\":\"done\"") && !text.contains("tenants") && !text.contains("erika")
        })
    });
    assert_eq!(letters(&processor, &orders)["open"], 18);
}

/// Requeued letters of a job wait at the members that own the partitions; aborting the job at any member frees all of
/// them.
#[test]
fn an_aborted_job_frees_the_letters_that_a_paused_pipeline_holds_at_all_members() {
    let count = 40;
    let dir = tempfile::tempdir().unwrap();
    let (stub, first, orders) = with_letters(dir.path(), count);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, count);
    stub.fix();
    good(&first, &["pause", &orders]);
    let paused =
        |processor: &Processor| processor.get(&format!("/v1/pipelines/{orders}")).json()["paused"] == true;
    wait_for("both to be paused", || paused(&first) && paused(&second));
    good(&first, &["dlq", "replay", &orders, "--all", "--canary", "0", "--detach"]);
    let name = first.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    let replaying = |processor: &Processor| letters(processor, &orders)["replaying"] == count;
    wait_for("all of them to be put back", || replaying(&first) && replaying(&second));
    let refused = second.cli(&["dlq", "erase", &orders, "--filter", "key:c-1", "--reason", "ticket 881"]);
    assert_eq!(refused.status.code(), Some(1), "a letter in a replay cannot be erased");

    good(&second, &["dlq", "replays", "abort", &name]);
    let open = |processor: &Processor| letters(processor, &orders)["open"] == count;
    wait_for("all of them to be open", || open(&first) && open(&second));
    wait_for("the job to have counted them", || {
        first.get(&format!("/v1/replays/{name}")).json()["untouched"] == count
    });
    let job = first.get(&format!("/v1/replays/{name}")).json();
    assert_eq!((&job["published"], &job["dead_again"]), (&json!(0), &json!(0)), "{job}");
    good(&second, &["dlq", "erase", &orders, "--filter", "key:c-1", "--reason", "ticket 881"]);
    good(&first, &["resume", &orders]);
    // Freed letters are not delivered, and can be replayed.
    let done = good(&first, &["dlq", "replay", &orders, "--filter", "key:c-2"]);
    assert!(done.contains("succeeded 6   dead again 0"), "{done}");
    let applied = (0..count).filter(|n| stub.has_applied(&format!("o-{n}"))).count();
    assert_eq!(applied, 6);
}

/// Two jobs over the same letters would share letters and pace; the second one takes the remaining ones, at any member.
#[test]
fn a_replay_leaves_out_letters_that_wait_in_a_job_of_another_member() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, first, orders) = with_letters(dir.path(), 21);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, 21);
    stub.fix();
    let slow = ["dlq", "replay", &orders, "--filter", "key:c-1,c-2", "--rate", "1/h", "--detach"];
    good(&first, &slow);
    let name = first.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    wait_for("the other to know of it", || {
        second.get(&format!("/v1/replays/{name}")).json()["published"] == 1
    });

    let dry = good(&second, &["dlq", "replay", &orders, "--all", "--dry-run"]);
    assert!(dry.contains("would replay 15 (frozen)"), "{dry}");
    assert!(dry.contains(&format!("5 more letters wait in {name}")), "{dry}");
    let done = good(&second, &["dlq", "replay", &orders, "--all"]);
    assert!(done.contains("… 15/15   succeeded 15   dead again 0   "), "{done}");
    let refused = second.cli(&["dlq", "replay", &orders, "--filter", "key:c-1"]);
    let said = world::process::stderr(&refused);
    assert!(!refused.status.success() && said.contains(&format!("in {name}")), "{said}");

    good(&second, &["dlq", "replays", "abort", &name]);
    good(&second, &["dlq", "replay", &orders, "--all"]);
    let replay = published(&format!("{orders}.replay"));
    assert_eq!(replay.len(), 21);
    assert!(replay.iter().all(|((_, replays), times)| replays == "1" && *times == 1), "{replay:?}");
}

/// Each time the member that runs the job is killed, the other one takes over; then the first comes back.
#[test]
fn a_job_whose_member_is_killed_again_and_again_publishes_each_letter_once() {
    let kills: u64 = std::env::var("REDRIVE_KAFKA_REPLAY_KILLS").map_or(2, |text| text.parse().unwrap());
    let count = 30 + kills * 60;
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut runner, orders) = with_letters(dir.path(), count);
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = join(elsewhere.path(), &orders, &stub, count);
    stub.fix();
    good(&runner, &["dlq", "replay", &orders, "--all", "--rate", "2/s", "--canary", "0", "--detach"]);
    let name = runner.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    let job = |processor: &Processor| processor.get(&format!("/v1/replays/{name}")).json();
    let published_by = |processor: &Processor| job(processor)["published"].as_u64().unwrap_or_default();
    // A member deletes completed records from time to time, so the topic is followed from its beginning.
    let records: Arc<Mutex<BTreeMap<(i32, i64), String>>> = Arc::default();
    let seen = Arc::clone(&records);
    let replay = format!("{orders}.replay");
    let follower = TopicFollower::start(&replay, move |record| {
        let id = kafka::header(record, "x-message-id").unwrap_or_default();
        seen.lock().unwrap().insert((record.partition(), record.offset()), id);
    });
    for kill in 1..=kills {
        let before = published_by(&other);
        wait_for("the job to go on", || published_by(&runner) > before + 5);
        runner.kill();
        let before = published_by(&other);
        wait_for("the other to take it over", || published_by(&other) > before + 5);
        assert_eq!(job(&other)["state"], "running", "kill {kill}: the job is long enough");
        runner.restart();
        wait_for("the first to be back", || {
            let state = job(&runner)["state"].clone();
            assert_ne!(state, "done", "kill {kill}: the job is long enough");
            state == "running"
        });
        std::mem::swap(&mut runner, &mut other);
    }
    // At its pace the rest may take longer than one wait allows.
    while job(&runner)["state"] != "done" {
        let before = published_by(&runner);
        wait_for("the job to go on", || {
            published_by(&runner) > before + 50 || job(&runner)["state"] == "done"
        });
    }
    let done = job(&runner);
    assert_eq!((&done["published"], &done["succeeded"]), (&json!(count), &json!(count)), "{done}");
    wait_for("all of it to be followed", || records.lock().unwrap().len() as u64 >= count);
    drop(follower);
    let mut records = records.lock().unwrap();
    // Any later records are still in the topic.
    kafka::read(&replay, |record| {
        let id = kafka::header(record, "x-message-id").unwrap_or_default();
        records.insert((record.partition(), record.offset()), id);
    });
    let ids: BTreeSet<&String> = records.values().collect();
    assert_eq!((records.len() as u64, ids.len() as u64), (count, count), "each letter was published once");
    // Applied once: as many effects as letters. Calls interrupted by a kill are repeated, and the receiver's ledger
    // detects them.
    assert!((0..count).all(|n| stub.has_applied(&format!("o-{n}"))));
    let stats = stub.stats();
    assert_eq!(stats["applied"], json!(count), "{stats}");
    println!(
        "{kills} kills of the member that ran {name}: {count} letters, each published once and applied once; {} \
         deliveries were repeated and recognised",
        stats["duplicates"]
    );
}
