//! Erasing dead letters: no file of the engine contains their content any more, whatever had happened to them before; a
//! tombstone and a line in the action log stay. Also with power failures in the middle.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redrive::actions::{ActionKind, Actions, EditWish, RETENTION_ACTOR};
use redrive::internal::engine::embedded::Tuning;
use redrive::internal::engine::embedded::disk::real::{Disk as _, DiskFile as _};
use redrive::internal::engine::embedded::disk::sim::SimDisk;
use redrive::internal::engine::embedded::index::runs::SortedRuns;
use redrive::internal::engine::embedded::store::Store;
use redrive::internal::engine::embedded::store::location::{OpenIndex, StoreLocation, seed};
use redrive::internal::engine::embedded::store::open::{StoreReport, open_by_hand};
use redrive::internal::engine::erase::is_tombstone;
use redrive::internal::engine::{
    Attempt, Deliver, EraseAnswer, EraseOrder, KeepLetters, LetterChange, LetterEdit, LetterVersion,
    NewMessage, Query, Settlement, StoreOptions, Verdict,
};
use redrive::internal::letters::json_text::JsonText;
use redrive::letters::edit::{MessageChange, Pointer};
use redrive::{
    BreakerSettings, Embedded, Failure, GuardSettings, LetterState, Message, Pipeline, PipelineHandle,
    Redrive, Time,
};
use redrive_core::{Class, FailureKind, Meta, Reason};
use support::{guarded, quick, until};

const SECRET: &str = "erika.mustermann@example.com";

/// All files below a directory that contain this text.
fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).unwrap().windows(text.len()).any(|part| part == text.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// A pipeline whose errors quote the payload, until it is repaired.
struct Running {
    handle: PipelineHandle,
    is_fixed: Arc<AtomicBool>,
    stop: tokio::sync::oneshot::Sender<()>,
    run: tokio::task::JoinHandle<()>,
}

fn start(dir: &Path) -> Running {
    let is_fixed = Arc::<AtomicBool>::default();
    let fixed = Arc::clone(&is_fixed);
    let handler = move |message: Message| {
        let payload = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
        let is_fixed = fixed.load(Ordering::SeqCst);
        async move {
            if is_fixed {
                return Ok(());
            }
            Err(Failure::transient(format!("cannot deliver to {payload}")).with_code(&payload))
        }
    };
    let pipeline = Pipeline::new("orders").policy(quick(1).outage_gate(false)).handler_fn(handler);
    let pipeline = pipeline.guard(GuardSettings::off()).breaker(BreakerSettings::off());
    let engine = Embedded::open(dir).unwrap();
    let redrive = Redrive::builder().engine(engine).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(async move {
        redrive.run_until(async { drop(stopped.await) }).await.unwrap();
    });
    Running { handle, is_fixed, stop, run }
}

impl Running {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        guarded(self.run).await.unwrap();
    }
}

fn message(id: &str, secret: &str) -> Message {
    let payload = format!("{{\"email\":\"{secret}\",\"currency\":\"eur\"}}");
    let builder = Message::builder(id).key(secret.to_owned()).tenant(secret).header("to", secret.to_owned());
    builder.payload(payload).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_an_erased_letter_is_left_in_any_file_whatever_happened_to_it_before() {
    let dir = tempfile::tempdir().unwrap();
    let actions = Actions::open(Some(dir.path())).unwrap();
    let running = start(dir.path());
    let handle = &running.handle;
    handle.ingest((0..4).map(|n| message(&format!("o-{n}"), SECRET))).await.unwrap();
    handle.ingest([message("o-4", "somebody.else@example.com")]).await.unwrap();
    guarded(until(handle, |counts| counts.letters_open == 5)).await;

    // The first letter has several versions, the second is discarded and could be restored, the third was replayed
    // twice.
    let value = JsonText::parse(b"\"EUR\"").unwrap();
    let set = vec![(Pointer::parse("/currency").unwrap(), value)];
    let wish = EditWish { change: MessageChange { set, ..MessageChange::default() }, ..EditWish::default() };
    actions.edit(handle, &[0], &wish, "ops").await.unwrap();
    let discard = actions.discard(handle, &[1], "ops", "ticket 880").await.unwrap().id.unwrap();
    handle.replay([2]).await.unwrap();
    guarded(until(handle, |counts| counts.letters_open == 4 && counts.letters_replaying == 0)).await;
    running.is_fixed.store(true, Ordering::SeqCst);
    handle.replay([2]).await.unwrap();
    guarded(until(handle, |counts| counts.letters_succeeded == 1)).await;
    assert!(!files_with(dir.path(), SECRET).is_empty());

    let done = actions.erase(handle, &[0, 1, 2, 3, 99], "ops", "GDPR ticket 881").await.unwrap();
    assert_eq!((done.erased, done.not_found, done.in_replay, done.already), (4, 1, 0, 0));
    assert_eq!((done.wiped.parts_left, done.wiped.remains.len()), (0, 0));
    assert_eq!(files_with(dir.path(), SECRET), Vec::<String>::new());
    assert!(!files_with(dir.path(), "somebody.else@example.com").is_empty(), "another letter stays");
    running.stop().await;
    assert_eq!(files_with(dir.path(), SECRET), Vec::<String>::new());

    // The tombstones are the same after a restart.
    let running = start(dir.path());
    let handle = &running.handle;
    let counts = handle.counts().await.unwrap();
    assert_eq!((counts.letters_erased, counts.letters_open, counts.letters_discarded), (4, 1, 0));
    for id in 0..4 {
        let letter = handle.letter(id).await.unwrap().unwrap();
        assert_eq!((letter.state, letter.message.id()), (LetterState::Erased, format!("o-{id}").as_str()));
        assert!(is_tombstone(&letter.message) && letter.message.key().is_none() && letter.edits.is_empty());
        let headers: Vec<_> = letter.message.headers().map(|(_, value)| value.to_vec()).collect();
        assert_eq!(headers[1..], [b"ops".to_vec(), b"GDPR ticket 881".to_vec()]);
        let attempts = letter.history.attempts();
        assert!(!attempts.is_empty() && attempts.iter().all(|attempt| attempt.class == Class::Transient));
        assert!(attempts.iter().all(|attempt| attempt.error.is_empty() && attempt.code.is_none()));
    }
    let listed = actions.list(None, 10).await.unwrap();
    let erased = listed.iter().find(|action| action.action == ActionKind::Erase).unwrap();
    assert_eq!((erased.letters, erased.actor.as_str()), (4, "ops"));
    assert_eq!(erased.note.as_deref(), Some("GDPR ticket 881"));

    // They cannot be restored, replayed, edited or erased again.
    assert_eq!(actions.undo(handle, &discard, "ops").await.unwrap().restored, 0);
    assert_eq!(actions.edit(handle, &[0], &wish, "ops").await.unwrap().letters, 0);
    let again = actions.erase(handle, &[0, 1], "ops", "again").await.unwrap();
    assert_eq!((again.erased, again.already), (0, 2));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_in_a_replay_is_refused_and_the_others_are_erased() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(dir.path());
    let handle = &running.handle;
    handle.ingest((0..2).map(|n| message(&format!("o-{n}"), SECRET))).await.unwrap();
    guarded(until(handle, |counts| counts.letters_open == 2)).await;
    handle.pause().await.unwrap();
    handle.replay([0]).await.unwrap();
    let actions = Actions::open(None).unwrap();
    let done = actions.erase(handle, &[0, 1], "ops", "ticket").await.unwrap();
    assert_eq!((done.erased, done.in_replay), (1, 1));
    assert_eq!(handle.letter(0).await.unwrap().unwrap().state, LetterState::Replaying);
    // The refused erasure is not in the action log.
    assert_eq!(actions.list(None, 1).await.unwrap()[0].letters, 1);
    handle.resume().await.unwrap();
    guarded(until(handle, |counts| counts.letters_open == 1)).await;
    assert_eq!(actions.erase(handle, &[0], "ops", "ticket").await.unwrap().erased, 1);
    assert_eq!(files_with(dir.path(), SECRET), Vec::<String>::new());
    running.stop().await;
}

/// The record of an erasure must not name letters that still exist, because its readers rely on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_that_was_cut_short_is_finished_at_the_next_start_and_its_record_is_true() {
    let (dir, count) = (tempfile::tempdir().unwrap(), 3_000);
    let running = start(dir.path());
    let handle = &running.handle;
    handle.ingest((0..count).map(|n| message(&format!("o-{n}"), SECRET))).await.unwrap();
    guarded(until(handle, |counts| counts.letters_open == count)).await;
    let ids: Vec<u64> = (0..count).collect();
    let actions = Actions::open(Some(dir.path())).unwrap();
    tokio::select! {
        biased;
        () = until(handle, |counts| counts.letters_erased > 0) => {}
        _ = actions.erase(handle, &ids, "ops", "ticket 881") => panic!("it was not cut short"),
    }
    let erased = handle.counts().await.unwrap().letters_erased;
    assert!(erased < count, "{erased}");
    let listed = actions.list(None, 10).await.unwrap();
    assert_eq!((listed.len(), listed[0].to_json()["unfinished"].as_bool()), (1, Some(true)), "{listed:?}");
    drop(actions);
    // Before the next start one of them dies again of another cause, which the erasure was not about.
    let survivor = count - 1;
    handle.replay([survivor]).await.unwrap();
    guarded(until(handle, |counts| counts.letters_replaying == 0)).await;
    running.stop().await;

    let running = start(dir.path());
    let handle = &running.handle;
    let actions = Actions::open(Some(dir.path())).unwrap();
    actions.attach(handle);
    guarded(until(handle, |counts| counts.letters_erased == count - 1)).await;
    guarded(async {
        while actions.list(None, 10).await.unwrap()[0].to_json().get("unfinished").is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let listed = actions.list(None, 10).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let recorded = (listed[0].letters, listed[0].actor.as_str(), listed[0].note.as_deref());
    assert_eq!(recorded, (count - 1, "ops", Some("ticket 881")));
    let stone = handle.letter(7).await.unwrap().unwrap();
    let because: Vec<_> = stone.message.headers().map(|(_, value)| value.to_vec()).collect();
    assert_eq!(because[1..], [b"ops".to_vec(), b"ticket 881".to_vec()]);
    let again = actions.erase(handle, &[survivor], "ops", "ticket 882").await.unwrap();
    assert_eq!((again.erased, again.wiped.parts_left), (1, 0));
    assert_eq!(files_with(dir.path(), SECRET), Vec::<String>::new());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_discards_old_open_letters_and_records_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(dir.path());
    let (handle, actions) = (&running.handle, Actions::open(None).unwrap());
    handle.ingest((0..3).map(|n| message(&format!("o-{n}"), SECRET))).await.unwrap();
    guarded(until(handle, |counts| counts.letters_open == 3)).await;
    actions.discard(handle, &[0], "ops", "ticket").await.unwrap();
    let replays = redrive::replay::Replays::open(None).unwrap();
    let young = actions.expire(handle, Duration::from_hours(24), &replays).await.unwrap();
    assert_eq!((young.discarded, young.id), (0, None), "and nothing is recorded");
    let old = actions.expire(handle, Duration::ZERO, &replays).await.unwrap();
    assert_eq!(old.discarded, 2);
    let recorded = actions.list(None, 10).await.unwrap();
    let discards: Vec<_> = recorded.iter().filter(|action| action.actor == RETENTION_ACTOR).collect();
    assert_eq!((discards.len(), discards[0].letters), (1, 2));
    assert_eq!(actions.undo(handle, &old.id.unwrap(), "ops").await.unwrap().restored, 2);
    running.stop().await;
}

type SimStore = Store<SimDisk, SortedRuns<SimDisk>>;

/// Small enough that a few letters fill segments, trigger checkpoints and start the cleaner.
fn tiny() -> Tuning {
    Tuning {
        segment_bytes: 2048,
        reserve_bytes: 0,
        near_max: 4,
        checkpoint_bytes: 1500,
        checkpoint_changes: 5,
        clean_above_bytes: 4096,
        ..Tuning::default()
    }
}

fn open(disk: &SimDisk, index: &SimDisk) -> (SimStore, StoreReport) {
    let place = StoreLocation {
        disk: disk.clone(),
        store_id: *b"an erasing store",
        options: StoreOptions::default(),
        tuning: tiny(),
        owner: 1,
    };
    let (seed, base, index) = (seed(&place.store_id), place.tuning.checkpoint_changes, index.clone());
    let open_index: OpenIndex<_> = Arc::new(move |anew: bool| {
        let open = if anew { SortedRuns::anew } else { SortedRuns::open };
        open(index.clone(), seed, base).map(Arc::new)
    });
    open_by_hand(&place, &open_index).expect("a store that was cut off opens again")
}

fn sim_files_with(disk: &SimDisk, text: &str) -> Vec<String> {
    let says = |name: &String| {
        let file = disk.open(name).unwrap();
        let bytes = file.read_vec(0, file.len().unwrap() as usize).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    disk.list().unwrap().into_iter().filter(says).collect()
}

const NOW: Time = Time::from_millis(1_000_000);

/// Creates letters 0, 1, …, of which every third belongs to the secret; they are retried once before they die.
fn fill(store: &mut SimStore, letters: u64) {
    let ingest = store.ingest().unwrap();
    for number in 0..letters {
        let secret = if number % 3 == 0 { SECRET } else { "somebody.else@example.com" };
        let message = message(&format!("o-{number}"), secret);
        let mut answer = ingest.submit(vec![NewMessage { message, due: None }], NOW);
        while answer.try_recv().is_err() {
            store.poll(&mut Vec::new()).unwrap();
        }
        for attempts in 1..=2 {
            let mut taken = Vec::new();
            store.take(NOW, 1, &mut taken).unwrap();
            let delivery = taken.pop().expect("it is due");
            let attempt = Attempt {
                number: attempts,
                at: NOW,
                took_ms: 1,
                class: Class::Permanent,
                kind: FailureKind::Other,
                code: None,
                counted: true,
                ambiguous: false,
                error: format!("refused {secret}"),
            };
            let meta = Meta { attempts, ..delivery.meta };
            let verdict = if attempts == 1 {
                Verdict::Retry { due: NOW, meta }
            } else {
                Verdict::Dead { reason: Reason::Permanent, meta, at: NOW }
            };
            store.settle(vec![Settlement { delivery, verdict, attempt: Some(attempt) }]).unwrap();
            while store.counts().settling != redrive::internal::engine::seam::Settling::default()
                || store.counts().in_flight > 0
            {
                store.poll(&mut Vec::new()).unwrap();
            }
        }
    }
}

/// Overwrites the copies, including those left by an earlier run.
fn wipe(store: &mut SimStore) {
    for _ in 0..10_000 {
        if store.wipe(NOW).unwrap().parts_left == 0 {
            return;
        }
    }
    panic!("the copies are never overwritten");
}

/// With a power failure at any step of an erasure, whichever unsynced sectors are lost, a letter is either unchanged or
/// erased without a trace, and nothing is reported as damage.
#[test]
fn power_may_fail_at_any_step_of_an_erasure() {
    let (disk, index) = (SimDisk::new(), SimDisk::new());
    let (mut store, _) = open(&disk, &index);
    fill(&mut store, 12);
    let letter = store.letter(0).unwrap().unwrap();
    let edited = message("o-0", &format!("{SECRET}, edited"));
    let edit = LetterEdit { letter: 0, from: LetterVersion::of(&letter), message: edited };
    store.edit_letters("e-1", &[edit], NOW.into()).unwrap();
    let order = EraseOrder { by: "ops".to_owned(), reason: "ticket".to_owned() };
    let secret: Vec<u64> = (0..12).filter(|number| number % 3 == 0).collect();

    // Power failures before the tombstones are durable.
    let (mut erased, mut kept) = (0, 0);
    let mut check = |disk: &SimDisk, index: &SimDisk, must_be_erased: bool| {
        for cut in 0..8 {
            let (disk, index) = (disk.power_cut(cut), index.power_cut(cut));
            let index = if cut % 2 == 0 { index } else { SimDisk::new() };
            let (mut store, report) = open(&disk, &index);
            assert!(report.journal.rot.is_empty() && report.letters.rot.is_empty(), "{report:?}");
            wipe(&mut store);
            let states: Vec<_> = secret.iter().map(|id| store.letter(*id).unwrap().unwrap().state).collect();
            let is_erased = states.iter().all(|state| *state == LetterState::Erased);
            assert!(is_erased || states.iter().all(|state| *state == LetterState::Open), "{states:?}");
            assert!(is_erased || !must_be_erased);
            if is_erased {
                assert_eq!(sim_files_with(&disk, SECRET), Vec::<String>::new(), "cut {cut}");
                erased += 1;
            } else {
                let message = store.letter(0).unwrap().unwrap().message;
                assert!(String::from_utf8_lossy(message.payload().unwrap()).contains(SECRET));
                kept += 1;
            }
            for other in (0..12).filter(|number| number % 3 != 0) {
                let letter = store.letter(other).unwrap().unwrap();
                assert_eq!((letter.state, letter.reason), (LetterState::Open, Reason::Permanent));
                assert!(letter.message.payload().is_some() && !letter.group.title.is_empty());
            }
            let running = store.dump_index().unwrap();
            drop(store);
            let (rebuilt, _) = open(&disk, &SimDisk::new());
            let mut rebuilt = rebuilt.dump_index().unwrap();
            rebuilt.retain(|line| !running.contains(line));
            assert!(rebuilt.is_empty(), "{rebuilt:#?}");
        }
    };
    check(&disk, &index, false);
    assert_eq!(store.erase_letters(&order, &secret, NOW).unwrap(), vec![EraseAnswer::Done; secret.len()]);
    check(&disk, &index, true);
    for _ in 0..10_000 {
        let left = store.wipe(NOW).unwrap().parts_left;
        check(&disk, &index, true);
        if left == 0 {
            break;
        }
    }
    assert_eq!(sim_files_with(&disk, SECRET), Vec::<String>::new());
    assert!(erased > 16 && kept == 8, "{erased} {kept}");
}

/// The cleaner may copy a letter at the moment it is erased: that copy is overwritten too.
#[test]
fn copies_that_the_cleaner_makes_meanwhile_are_overwritten_too() {
    for polls in 0..40 {
        let (disk, index) = (SimDisk::new(), SimDisk::new());
        let (mut store, _) = open(&disk, &index);
        fill(&mut store, 30);
        // Further polls, so that the cleaner gets to work.
        (0..polls).for_each(|_| store.poll(&mut Vec::new()).unwrap());
        let order = EraseOrder { by: "ops".to_owned(), reason: "ticket".to_owned() };
        let secret: Vec<u64> = (0..30).filter(|number| number % 3 == 0).collect();
        store.erase_letters(&order, &secret, NOW).unwrap();
        wipe(&mut store);
        (0..100).for_each(|_| store.poll(&mut Vec::new()).unwrap());
        assert_eq!(sim_files_with(&disk, SECRET), Vec::<String>::new(), "after {polls} polls");
        assert_eq!(store.counts().letters_erased, secret.len() as u64);
        assert_eq!(store.counts().letters_open, 30 - secret.len() as u64);
    }
}

/// Resolved letters are purged a month after their death, when the journal is cleaned, and can be restored until then.
/// Open ones are never purged.
#[test]
fn closed_letters_are_forgotten_after_a_month_and_open_ones_never() {
    let (disk, index) = (SimDisk::new(), SimDisk::new());
    let (mut store, _) = open(&disk, &index);
    fill(&mut store, 30);
    let closed: Vec<u64> = (0..30).filter(|number| number % 3 == 0).collect();
    let discarded = store.change_letters(&LetterChange::Discard, &closed, NOW.into()).unwrap();
    assert!(discarded.into_iter().all(|done| done));
    // The journal is written and cleaned a lot within the month: nothing is purged.
    let churn = |store: &mut SimStore, now: Time| {
        for _ in 0..60 {
            store.take(now, 1, &mut Vec::new()).unwrap();
            store.change_letters(&LetterChange::Discard, &[1], now.into()).unwrap();
            store.change_letters(&LetterChange::Undo, &[1], now.into()).unwrap();
            (0..20).for_each(|_| store.poll(&mut Vec::new()).unwrap());
        }
    };
    churn(&mut store, NOW.plus(Duration::from_hours(29 * 24)));
    assert_eq!((store.counts().letters_discarded, store.counts().letters_open), (10, 20));
    for _ in 0..20 {
        churn(&mut store, NOW.plus(Duration::from_hours(31 * 24)));
        if store.counts().letters_discarded == 0 {
            break;
        }
    }
    assert_eq!((store.counts().letters_discarded, store.counts().letters_open), (0, 20));
    assert!(store.letter(0).unwrap().is_none() && store.letter(1).unwrap().is_some());
    let undone = store.change_letters(&LetterChange::Undo, &[0], NOW.into()).unwrap();
    assert_eq!(undone, [false], "it is too late");
}
