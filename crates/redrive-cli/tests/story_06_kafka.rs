//! Story 6 on Kafka: dead letters in a topic are inspected, discarded and restored, replayed at a pace through kills,
//! and replayed onto the source topic only if the user accepts that other groups get them again.
#![cfg(feature = "kafka")]

mod world;

use serde_json::{Value, json};
use world::members::{actions, good, join, letters, published, with_letters};
use world::process::{Processor, stderr, stdout};
use world::{kafka, wait_for};

#[test]
fn letters_in_a_topic_are_discarded_brought_back_and_replayed_once_through_kills() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor, orders) = with_letters(dir.path(), 120);

    // Found by the position of the record it came from.
    let listed = processor.get(&format!("/v1/pipelines/{orders}/letters?limit=1")).json();
    let first = &listed["letters"][0];
    let id = first["id"].as_str().unwrap();
    assert_eq!(id, format!("{orders}/0/0"));
    let shown = good(&processor, &["dlq", "show", &orders, id]);
    assert!(shown.contains(first["message"].as_str().unwrap()), "{shown}");

    let discard = ["dlq", "discard", &orders, "--filter", "key:c-3", "--reason", "customers deleted"];
    let said = good(&processor, &discard);
    assert!(said.starts_with("discarded 17   (kept as tombstones, undo until "), "{said}");
    let discard = said.trim_end().trim_end_matches(')').rsplit(' ').next().unwrap();
    assert!(discard.starts_with("d-") && discard.ends_with("-1"), "{said}");
    // The state and the actor are in Kafka.
    processor.kill();
    processor.restart();
    wait_for("the discard", || letters(&processor, &orders)["discarded"] == 17);
    assert_eq!(good(&processor, &["dlq", "undo", &orders, discard]), "restored 17   (open again)\n");

    stub.fix();
    let started = good(&processor, &["dlq", "replay", &orders, "--all", "--rate", "40/s", "--detach"]);
    let name = processor.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    assert!(started.contains(&name) && name.ends_with("-1"), "{started}");
    let job = |processor: &Processor| processor.get(&format!("/v1/replays/{name}")).json();
    for reached in [20, 50, 80] {
        wait_for("the job to go on", || job(&processor)["published"].as_u64().unwrap() >= reached);
        processor.kill();
        processor.restart();
    }
    let resumed = good(&processor, &["dlq", "replay", "--resume", &name]);
    assert!(resumed.contains("   … 120/120   succeeded 120   dead again 0   "), "{resumed}");
    let (replay, dlq) = (published(&format!("{orders}.replay")), published(&format!("{orders}.DLQ")));
    assert_eq!(replay.len(), 120);
    assert!(replay.iter().all(|((_, replays), times)| replays == "1" && *times == 1), "{replay:?}");
    assert!(dlq.keys().all(|(_, replays)| replays == "0"), "{dlq:?}");
    assert!((0..120).all(|n| stub.has_applied(&format!("o-{n}"))));
    let all = json!({"open": 0, "replaying": 0, "succeeded": 120, "discarded": 0, "erased": 0});
    assert_eq!(letters(&processor, &orders), all);

    let actions = actions(&processor, &orders);
    let done = |action: &str| actions.iter().filter(|line| line["action"] == action).count();
    assert_eq!((done("discard"), done("undo"), done("replay")), (1, 1, 1), "{actions:?}");
    assert!(actions.iter().all(|line| line["actor"].is_string()), "{actions:?}");
}

#[test]
fn letters_go_onto_the_source_only_if_somebody_says_yes() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, processor, orders) = with_letters(dir.path(), 12);
    stub.fix();
    let billing = format!("{orders}-billing");
    kafka::commit_as(&billing, &orders);
    let to_source = ["dlq", "replay", &orders, "--all", "--to", "source"];
    let dry = good(&processor, &[&to_source[..], &["--dry-run"]].concat());
    assert!(dry.contains("would replay 12") && dry.contains(&billing), "{dry}");
    let refused = processor.cli(&to_source);
    assert_eq!(refused.status.code(), Some(2), "{}", stdout(&refused));
    let said = stderr(&refused);
    assert!(said.contains(&billing) && said.contains("--yes"), "{said}");
    assert_eq!(letters(&processor, &orders)["open"], 12);

    let replayed = good(&processor, &[&to_source[..], &["--yes"]].concat());
    assert!(replayed.contains("… 12/12   succeeded 12   dead again 0   "), "{replayed}");
    assert!(published(&format!("{orders}.replay")).is_empty());
    let again = published(&orders).into_iter().filter(|((_, replays), _)| replays == "1");
    assert_eq!(again.map(|(_, times)| times).collect::<Vec<u32>>(), [1; 12]);
    assert_eq!(letters(&processor, &orders)["succeeded"], 12);
}

/// A dry run with each kind of selection; then a fix that does not work, which the canary shows before the rest is
/// replayed.
#[test]
fn a_replay_is_planned_by_any_selection_and_stopped_by_its_canary_until_it_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, processor, orders) = with_letters(dir.path(), 20);
    let replay = ["dlq", "replay", &orders];
    let groups = processor.get(&format!("/v1/pipelines/{orders}/groups")).json();
    let group = groups["groups"][0]["id"].as_str().unwrap();
    for (selection, letters) in [
        (&["--all"][..], 20),
        (&["--group", group], 20),
        (&["--group", group, "--filter", "key:c-3"], 3),
        (&["--since", "1h"], 20),
        (&["--ids", "o-1,o-2"], 2),
        (&["--filter", "error-class=permanent"], 20),
        (&["--filter", "key:c-3 error-class=permanent"], 3),
    ] {
        let planned = good(&processor, &[&replay[..], selection, &["--dry-run"]].concat());
        let would =
            format!("would replay {letters} (frozen)   to {orders}.replay (only this pipeline sees it)");
        assert!(planned.starts_with(&would), "{selection:?}: {planned}");
    }
    assert!(published(&format!("{orders}.replay")).is_empty(), "a plan changes nothing");

    let stopped = processor.cli(&[&replay[..], &["--all"]].concat());
    let said = stdout(&stopped);
    assert_eq!(stopped.status.code(), Some(1), "{said}{}", stderr(&stopped));
    let why = "canary 0/10 … 10/20  ✗ stopped: 10 of the first 10 failed (canary, limit 20 %). 10 letters untouched.";
    assert!(said.contains(why), "{said}");
    assert_eq!(published(&format!("{orders}.replay")).len(), 10);
    stub.fix();
    let name = processor.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    let resumed = processor.cli(&["dlq", "replay", "--resume", &name]);
    assert_eq!(resumed.status.code(), Some(1), "ten are dead again: {}", stdout(&resumed));
    assert!(stdout(&resumed).contains("… 20/20   succeeded 10   dead again 10   "), "{}", stdout(&resumed));
    let replay = published(&format!("{orders}.replay"));
    assert_eq!(replay.len(), 20);
    assert!(replay.values().all(|times| *times == 1), "{replay:?}");
}

/// The selection is frozen when the job starts.
#[test]
fn a_letter_that_dies_while_a_replay_runs_is_not_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, processor, orders) = with_letters(dir.path(), 20);
    stub.fix();
    good(&processor, &["dlq", "replay", &orders, "--all", "--rate", "1/s", "--canary", "0", "--detach"]);
    let name = processor.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    let job = || processor.get(&format!("/v1/replays/{name}")).json();
    // It has the key of letters that wait in the job.
    let late = json!({ "order_id": "late", "amount": 1, "payload": "fails 9 " }).to_string();
    kafka::produce(&orders, [("c-1".to_owned(), late)]);
    let late = || processor.get(&format!("/v1/pipelines/{orders}/letters?filter=id:late")).json();
    wait_for("the late one to die", || late()["letters"][0]["state"] == "open");
    let running = job();
    assert_eq!((&running["state"], &running["total"]), (&json!("running"), &json!(20)), "{running}");

    let followed = good(&processor, &["dlq", "replay", "--resume", &name]);
    assert!(followed.contains("… 20/20   succeeded 20   dead again 0   "), "{followed}");
    let replay = published(&format!("{orders}.replay"));
    assert!(replay.len() == 20 && replay.keys().all(|(id, _)| id.starts_with("o-")), "{replay:?}");
    let left = &late()["letters"][0];
    assert_eq!((&left["state"], &left["replays"]), (&json!("open"), &json!(0)), "{left}");
    assert_eq!(letters(&processor, &orders)["open"], 1);
}

#[test]
fn what_dies_again_is_an_open_letter_of_the_next_generation() {
    let dir = tempfile::tempdir().unwrap();
    let (_stub, processor, orders) = with_letters(dir.path(), 3);
    let again = processor.cli(&["dlq", "replay", &orders, "--all"]);
    assert_eq!(again.status.code(), Some(1), "{}{}", stdout(&again), stderr(&again));
    let said = stdout(&again);
    assert!(said.contains("  3/3   succeeded 0   dead again 3   "), "{said}");
    assert_eq!(letters(&processor, &orders)["open"], 3);
    let dlq = published(&format!("{orders}.DLQ"));
    let of = |generation: &str| dlq.keys().filter(|(_, replays)| replays == generation).count();
    assert_eq!((of("0"), of("1")), (3, 3));
}

/// Each process has its first discard and its first replay; no two of them may have the same name.
#[test]
fn a_discard_or_a_replay_of_one_process_is_never_taken_for_another_of_the_same_number() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, first, orders) = with_letters(dir.path(), 14);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, 14);
    let discard = |processor: &Processor, key: &str| {
        let filter = format!("key:{key}");
        let args = ["dlq", "discard", &orders, "--filter", &filter, "--reason", "test", "--json"];
        let said: Value = serde_json::from_str(&good(processor, &args)).unwrap();
        assert_eq!(said["discarded"], 2, "{said}");
        said["id"].as_str().unwrap().to_owned()
    };
    let (mine, theirs) = (discard(&first, "c-1"), discard(&second, "c-2"));
    assert_ne!(mine, theirs);
    wait_for("both to be known", || letters(&second, &orders)["discarded"] == 4);
    let undone = good(&second, &["dlq", "undo", &orders, &mine]);
    assert_eq!(undone, "restored 2   (open again)\n");
    wait_for("the undo to be known", || letters(&first, &orders)["discarded"] == 2);
    let open = good(&first, &["dlq", "inspect", &orders, "--filter", "key:c-1", "--json"]);
    assert!(open.contains("\"open\""), "the letters of that discard, and of no other: {open}");
    let wrong = second.cli(&["dlq", "undo", &orders, "d-zzzzz-9"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", stdout(&wrong));
    assert!(stderr(&wrong).contains("not of this process"), "{}", stderr(&wrong));

    stub.fix();
    let replay = |processor: &Processor, key: &str| {
        let filter = format!("key:{key}");
        good(processor, &["dlq", "replay", &orders, "--filter", &filter]);
        processor.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned()
    };
    let (mine, theirs) = (replay(&first, "c-3"), replay(&second, "c-4"));
    assert_ne!(mine, theirs);
    wait_for("the other to know of it", || {
        second.get(&format!("/v1/replays/{mine}")).json()["state"] == "done"
    });
    let wrong = second.cli(&["dlq", "replay", "--abort", &mine]);
    assert!(stderr(&wrong).contains("is done and can no longer be changed"), "{}", stderr(&wrong));
}

/// A job belongs to the group: any member shows and pauses it, and another continues it when its member dies.
#[test]
fn a_job_is_paused_at_any_member_and_carried_on_by_another_when_its_member_dies() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut first, orders) = with_letters(dir.path(), 120);
    let elsewhere = tempfile::tempdir().unwrap();
    let second = join(elsewhere.path(), &orders, &stub, 120);
    stub.fix();
    good(&first, &["dlq", "replay", &orders, "--all", "--rate", "10/s", "--detach"]);
    let name = first.get("/v1/replays").json()["replays"][0]["id"].as_str().unwrap().to_owned();
    let job = |processor: &Processor| processor.get(&format!("/v1/replays/{name}")).json();
    wait_for("the other to see it go on", || job(&second)["published"].as_u64() >= Some(15));
    let listed = good(&second, &["dlq", "replays"]);
    assert!(listed.contains(&name) && listed.contains("running"), "{listed}");

    let paused = good(&second, &["dlq", "replays", "pause", &name]);
    assert!(paused.contains("paused"), "{paused}");
    assert_eq!(job(&first)["state"], "paused", "the member that runs it has paused it");
    let resumed = good(&second, &["dlq", "replays", "resume", &name]);
    assert!(resumed.contains("running"), "{resumed}");

    wait_for("some more of it", || job(&second)["published"].as_u64() >= Some(25));
    first.kill();
    wait_for("the other to carry it on to its end", || job(&second)["state"] == "done");
    let done = job(&second);
    assert_eq!((&done["published"], &done["succeeded"]), (&json!(120), &json!(120)), "{done}");
    let replay = published(&format!("{orders}.replay"));
    assert_eq!(replay.len(), 120);
    assert!(replay.iter().all(|((_, replays), times)| replays == "1" && *times == 1), "{replay:?}");
    assert!((0..120).all(|n| stub.has_applied(&format!("o-{n}"))));

    // The first one comes back and does not start over.
    first.restart();
    wait_for("the first to know its end", || job(&first)["state"] == "done");
    assert_eq!(published(&format!("{orders}.replay")).len(), 120);
}
