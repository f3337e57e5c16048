//! `redrive journal` reads a store as it lies on the disk, finds damage, and never changes a byte.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use redrive::{Embedded, Failure, Message, Pipeline, Policy, Redrive};
use support::redrive;

/// A store with 20 messages: half are delivered, half are dead letters, one of which is discarded.
fn make_store(dir: &Path) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |message: Message| {
        let calls = Arc::clone(&counted);
        async move {
            calls.fetch_add(1, Ordering::SeqCst);
            let number: u32 = message.id()[2..].parse().unwrap_or(0);
            if number.is_multiple_of(2) { Ok(()) } else { Err(Failure::permanent("422 no")) }
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let pipeline = Pipeline::new("orders").policy(Policy::tiers(["1h"])).handler_fn(handler);
        let redrive =
            Redrive::builder().engine(Embedded::open(dir).unwrap()).pipeline(pipeline).build().unwrap();
        let orders = redrive.pipeline("orders").unwrap();
        let messages: Vec<Message> =
            (0..20).map(|i| Message::builder(format!("o-{i}")).payload("{}").build().unwrap()).collect();
        orders.ingest(messages).await.unwrap();
        let until = async {
            while calls.load(Ordering::SeqCst) < 20 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        redrive.run_until(until).await.unwrap();
    });
}

/// Content and time of every file.
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
    assert!(
        ran.stdout.contains("letters     open 10 · replaying 0 · succeeded 0 · discarded 0"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("✓ every frame is whole"), "{}", ran.stdout);

    let ran = redrive(dir.path(), &["journal", "data", "--pipeline", "orders", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let orders = &report["stores"][0];
    assert_eq!(orders["journal"]["frames"]["accepted"]["frames"], 20);
    assert_eq!(orders["journal"]["frames"]["dead"]["frames"], 10);
    assert_eq!(orders["letters"]["open"], 10);
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
fn a_store_in_use_is_read_and_its_owner_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    make_store(&store);
    let owner = Embedded::open(&store).unwrap();
    let ran = redrive(dir.path(), &["journal", "data"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains(&format!("in use by process {}", std::process::id())), "{}", ran.stdout);
    let again = Embedded::open(&store);
    assert!(again.is_err(), "the owner has not lost its lock");
    drop(owner);
}

#[test]
fn what_is_no_store_and_what_cannot_be_read_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let ran = redrive(dir.path(), &["journal", "nowhere"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(!dir.path().join("nowhere").exists(), "nothing is made");

    let store = dir.path().join("data");
    make_store(&store);
    let ran = redrive(dir.path(), &["journal", "data", "--pipeline", "nobody"]);
    assert_eq!(ran.code, Some(74), "{}", ran.stderr);
    fs::write(store.join("FORMAT"), "redrive store\nformat 99\nid 00000000000000000000000000000000\n")
        .unwrap();
    let ran = redrive(dir.path(), &["journal", "data"]);
    assert_eq!(ran.code, Some(74), "{}", ran.stderr);
    assert!(ran.stderr.contains("has format 99, this program reads up to"), "{}", ran.stderr);
}
