//! `redrive journal` reads a store on disk, finds damage, and never changes a byte.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use redrive::{
    BreakerSettings, Embedded, Failure, GuardSettings, LetterState, Message, Pipeline, PipelineHandle,
    Policy, Redrive,
};
use support::redrive;

/// A store with 20 messages. Half are delivered; of the dead letters one is discarded and one is replayed successfully.
fn make_store(dir: &Path) {
    let repaired = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&repaired);
    let handler = move |message: Message| {
        let works = works.load(Ordering::SeqCst);
        async move {
            let number: u32 = message.id()[2..].parse().unwrap_or(0);
            if works || number.is_multiple_of(2) { Ok(()) } else { Err(Failure::permanent("422 no")) }
        }
    };
    runtime().block_on(async {
        let pipeline = Pipeline::new("orders").policy(Policy::tiers(["1h"])).handler_fn(handler);
        let redrive =
            Redrive::builder().engine(Embedded::open(dir).unwrap()).pipeline(pipeline).build().unwrap();
        let orders = redrive.pipeline("orders").unwrap();
        orders.ingest(messages(0..20)).await.unwrap();
        let until = async {
            let open = wait_for(&orders, LetterState::Open, 10).await;
            repaired.store(true, Ordering::SeqCst);
            orders.discard([open[0]]).await.unwrap();
            orders.replay([open[1]]).await.unwrap();
            wait_for(&orders, LetterState::Succeeded, 1).await;
        };
        redrive.run_until(until).await.unwrap();
    });
}

/// The ids of the letters in a state, once there are `count`.
async fn wait_for(orders: &PipelineHandle, state: LetterState, count: usize) -> Vec<u64> {
    loop {
        let letters = orders.letters(Some(state), None, 100).await.unwrap();
        if letters.len() >= count {
            return letters.iter().map(|letter| letter.id).collect();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn messages(ids: std::ops::Range<u32>) -> Vec<Message> {
    ids.map(|i| Message::builder(format!("o-{i}")).payload("{}").build().unwrap()).collect()
}

/// Content and modification time of every file.
fn state(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        if path.is_dir() {
            files.insert(path.clone(), (Vec::new(), modified));
            files.extend(state(&path));
        } else {
            files.insert(path.clone(), (fs::read(&path).unwrap(), modified));
        }
    }
    files
}

fn journal_file(dir: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = fs::read_dir(dir.join("orders/journal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("j-"))
        .collect();
    files.sort();
    files.remove(0)
}

#[test]
fn a_whole_store_is_counted_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    let before = state(&store);
    let ran = redrive(dir.path(), &["journal", "data"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("pending     0\n"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("letters     open 8 · replaying 0 · succeeded 1 · discarded 1"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("✓ every frame is whole"), "{}", ran.stdout);

    let ran = redrive(dir.path(), &["journal", "data", "--pipeline", "orders", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let orders = &report["stores"][0];
    assert_eq!(orders["journal"]["frames"]["accepted"]["frames"], 20);
    assert_eq!(orders["journal"]["frames"]["dead"]["frames"], 10);
    assert_eq!(orders["letters"], serde_json::json!({"open": 8, "succeeded": 1, "discarded": 1}));
    assert_eq!((&report["damaged"], &orders["owner"]), (&false.into(), &serde_json::Value::Null));

    let ran = redrive(dir.path(), &["journal", "data", "--frames"]);
    assert!(ran.stdout.contains("accepted") && ran.stdout.contains("  o-19"), "{}", ran.stdout);
    assert_eq!(state(&store), before, "bytes and times are as they were");
}

#[test]
fn damage_is_found_with_its_place_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    let file = journal_file(&store);
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(4).position(|window| window == b"o-13").unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let before = state(&store);
    let ran = redrive(dir.path(), &["journal", "data"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("was accepted of message 13"), "{}", ran.stdout);
    let ran = redrive(dir.path(), &["journal", "data", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let damage = &report["stores"][0]["journal"]["damage"][0];
    let (offset, len) = (damage["offset"].as_u64().unwrap(), damage["bytes"].as_u64().unwrap());
    assert!((offset..offset + len).contains(&(at as u64)), "{damage} is not around {at}");
    assert_eq!(state(&store), before);
}

#[test]
fn a_torn_end_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    let file = journal_file(&store);
    let mut bytes = fs::read(&file).unwrap();
    bytes.extend([0xab; 100]);
    fs::write(&file, bytes).unwrap();
    let ran = redrive(dir.path(), &["journal", "data"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert!(ran.stdout.contains("100 unfinished bytes at the end"), "{}", ran.stdout);
}

#[test]
fn a_store_is_read_while_its_owner_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    let handler = |_: Message| async { Err(Failure::transient("503")) };
    let runtime = runtime();
    // Everything fails and must become letters.
    let pipeline = Pipeline::new("orders").breaker(BreakerSettings::off()).guard(GuardSettings::off());
    let policy = Policy::tiers(["1ms", "2ms"]).outage_gate(false);
    let pipeline = pipeline.policy(policy).handler_fn(handler);
    let redrive =
        Redrive::builder().engine(Embedded::open(&store).unwrap()).pipeline(pipeline).build().unwrap();
    let orders = redrive.pipeline("orders").unwrap();
    let writer = orders.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = runtime.spawn(async move {
        let until = async {
            let _ = stopped.await;
        };
        redrive.run_until(until).await
    });
    let writing = runtime.spawn(async move {
        let mut sent = 20;
        // Ends when the pipeline does.
        while writer.ingest(messages(sent..sent + 50)).await.is_ok() {
            sent += 50;
        }
        sent
    });
    let dead = || runtime.block_on(orders.letters(Some(LetterState::Open), None, 1_000)).unwrap().len();
    for look in 1..=5 {
        // Each check runs while the store is written: more letters have died since the previous one.
        while dead() < 8 + look {
            std::thread::sleep(Duration::from_millis(2));
        }
        let ran = redrive_at(dir.path());
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(&format!("in use by process {}", std::process::id())), "{}", ran.stdout);
    }
    let _ = stop.send(());
    let report = runtime.block_on(running).unwrap().unwrap();
    let sent = runtime.block_on(writing).unwrap();
    assert!(sent > 20 && report.total().dead > 0, "the owner went on: {sent} {report}");
}

fn redrive_at(dir: &Path) -> support::Ran {
    redrive(dir, &["journal", "data"])
}

#[test]
fn what_is_no_store_and_what_cannot_be_read_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let ran = redrive(dir.path(), &["journal", "nowhere"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(!dir.path().join("nowhere").exists(), "nothing is made");

    let store = dir.path().join("data");
    make_store(&store);
    // A pipeline without a store here is a misspelling, not a disk problem.
    for (name, said) in
        [("nobody", "there are orders"), ("order", "did you mean `orders`?"), ("..", "orders")]
    {
        let ran = redrive(dir.path(), &["journal", "data", "--pipeline", name]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    fs::write(store.join("FORMAT"), "redrive store\nformat 99\nid 00000000000000000000000000000000\n")
        .unwrap();
    let ran = redrive(dir.path(), &["journal", "data"]);
    assert_eq!(ran.code, Some(74), "{}", ran.stderr);
    assert!(ran.stderr.contains("has format 99, this program reads up to"), "{}", ran.stderr);
}

#[test]
fn verify_prints_only_what_is_wrong_and_reads_the_index_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    let before = state(&store);
    let ran = redrive(dir.path(), &["journal", "data", "--verify"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), 1), "{}", ran.stdout);
    assert!(ran.stdout.contains("verified"), "{}", ran.stdout);
    assert_eq!(state(&store), before, "bytes and times are as they were");

    let runs = fs::read_dir(store.join("orders/index")).unwrap().map(|entry| entry.unwrap().path());
    let newest = runs.filter(|file| file.extension().is_some()).max().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    bytes[20] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let ran = redrive(dir.path(), &["journal", "data", "--verify"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("index") && ran.stdout.contains("rebuilds it"), "{}", ran.stdout);
    let ran = redrive(dir.path(), &["journal", "data", "--verify", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["damaged"], true);
}

/// Once, the letter log went missing, and `journal` reported that every frame was whole.
#[test]
fn what_is_missing_is_named_and_given_up_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    let segment = journal_file(&store);
    let len = fs::metadata(&segment).unwrap().len();
    fs::File::options().write(true).open(&segment).unwrap().set_len(len / 2).unwrap();
    for flags in [&["journal", "data"][..], &["journal", "data", "--verify"][..]] {
        let ran = redrive(dir.path(), flags);
        assert_eq!(ran.code, Some(1), "{}", ran.stdout);
        assert!(ran.stdout.contains("missing: positions"), "{}", ran.stdout);
    }
    let opened =
        Embedded::open(&store).unwrap().store("orders", redrive::internal::engine::StoreOptions::default());
    assert!(opened.unwrap_err().to_string().contains("--accept-loss"));

    let ran = redrive(dir.path(), &["journal", "data", "--accept-loss"]);
    assert_eq!(ran.code, Some(2), "which pipeline has to be said: {}", ran.stderr);
    let ran = redrive(dir.path(), &["journal", "data", "--pipeline", "orders", "--accept-loss"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("bytes of the journal, with at most"), "{}", ran.stdout);
    let actions = fs::read_to_string(store.join("actions.ndjson")).unwrap();
    assert!(actions.contains("accept_loss") && actions.contains("bytes of the journal"), "{actions}");
    drop(
        Embedded::open(&store)
            .unwrap()
            .store("orders", redrive::internal::engine::StoreOptions::default())
            .unwrap(),
    );
    let ran = redrive(dir.path(), &["journal", "data", "--pipeline", "orders", "--accept-loss"]);
    assert!(ran.stderr.contains("nothing is missing"), "{}{}", ran.stdout, ran.stderr);
}

/// Once, the directory of a pipeline was removed; the processor refused to start, and `journal` found nothing wrong.
#[test]
fn a_pipeline_whose_directory_was_removed_is_missed_with_what_it_held() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    fs::remove_dir_all(store.join("orders")).unwrap();
    for flags in [
        &["journal", "data"][..],
        &["journal", "data", "--verify"],
        &["journal", "data", "--pipeline", "orders"],
        &["journal", "data", "--pipeline", "orders", "--verify"],
    ] {
        let ran = redrive(dir.path(), flags);
        assert_eq!(ran.code, Some(1), "{flags:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("the directory of pipeline `orders` is missing"), "{}", ran.stdout);
        assert!(ran.stdout.contains("8 dead letters"), "{}", ran.stdout);
        assert!(ran.stdout.contains("--pipeline orders --accept-loss"), "{}", ran.stdout);
    }
    let ran = redrive(dir.path(), &["journal", "data", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&report["damaged"], &report["removed"][0]["letters"]), (&true.into(), &8.into()), "{report}");
    // The suggested command works, and then nothing is missing.
    let ran = redrive(dir.path(), &["journal", "data", "--pipeline", "orders", "--accept-loss"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(redrive(dir.path(), &["journal", "data", "--verify"]).code, Some(0));
}

/// It once ended with `fix: see the message; nothing was started`.
#[test]
fn a_processor_whose_store_is_gone_says_what_one_can_do() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    fs::remove_dir_all(store.join("orders")).unwrap();
    let config = "[engine]\ndir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n[[pipeline]]\nname = \"orders\"\n\
                  [pipeline.sink.webhook]\nurl = \"http://127.0.0.1:9/\"\n";
    fs::write(dir.path().join("redrive.toml"), config).unwrap();
    let ran = redrive(dir.path(), &["processor"]);
    assert_eq!(ran.code, Some(74), "{}", ran.stderr);
    assert!(ran.stderr.contains("`redrive journal --accept-loss`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("nothing was started"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("see the message"), "{}", ran.stderr);
}
