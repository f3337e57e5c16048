//! Replay jobs on a running pipeline: pace, pause, abort, skipped letters, and resuming after a restart.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::actions::{ActionKind, Actions};
use redrive::internal::engine::{Engine, EngineError, ReplayTarget, StoreOptions};
use redrive::internal::replay::stop::STOP_AT_DEFAULT;
use redrive::letters::Selection;
use redrive::replay::{
    Ambiguous, HeldWhy, Plan, PlanOptions, ReplayError, ReplaySpec, ReplayState, ReplayView, Replays,
};
use redrive::{
    Clock, Embedded, Failure, GuardSettings, LetterState, MemoryStores, Message, Pipeline, PipelineHandle,
    Redrive, Stores, Time,
};
use support::{Asked, Faulty, guarded, message, quick, until};

/// A pipeline whose handler refuses everything until it is repaired, and the messages it delivered since.
struct Rig {
    redrive: Redrive,
    handle: PipelineHandle,
    broken: Arc<AtomicBool>,
    delivered: Arc<Mutex<Vec<String>>>,
    calls: Arc<AtomicUsize>,
}

impl Rig {
    fn new(stores: impl Stores + 'static) -> Self {
        let broken = Arc::new(AtomicBool::new(true));
        let delivered: Arc<Mutex<Vec<String>>> = Arc::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let (is_broken, delivers, called) = (Arc::clone(&broken), Arc::clone(&delivered), Arc::clone(&calls));
        let handler = move |m: Message| {
            called.fetch_add(1, SeqCst);
            let fails = is_broken.load(SeqCst) || m.id().starts_with("never");
            if !fails {
                delivers.lock().unwrap().push(m.id().to_owned());
            }
            let vague = m.id().starts_with("vague");
            async move {
                match (fails, vague) {
                    (false, _) => Ok(()),
                    (true, false) => Err(Failure::permanent("422 no")),
                    (true, true) => Err(Failure::permanent("no answer").ambiguous()),
                }
            }
        };
        // Without the guard, all messages can die.
        let pipeline =
            Pipeline::new("orders").policy(quick(0)).guard(GuardSettings::off()).handler_fn(handler);
        let redrive = Redrive::builder().engine(stores).pipeline(pipeline).build().unwrap();
        let handle = redrive.pipeline("orders").unwrap();
        Self { redrive, handle, broken, delivered, calls }
    }

    fn run(&self) -> tokio::task::JoinHandle<()> {
        let redrive = self.redrive.clone();
        tokio::spawn(async move {
            let _ = redrive.run_until(std::future::pending::<()>()).await;
        })
    }

    /// Runs until these messages are dead, then repairs the handler.
    async fn with_letters(&self, ids: impl IntoIterator<Item = String>) -> u64 {
        let messages: Vec<Message> = ids.into_iter().map(message).collect();
        let count = messages.len() as u64;
        let before = self.handle.counts().await.unwrap().letters_open;
        self.handle.ingest(messages).await.unwrap();
        guarded(until(&self.handle, |c| c.letters_open == before + count)).await;
        self.broken.store(false, SeqCst);
        count
    }
}

fn spec(rate: Option<f64>) -> ReplaySpec {
    ReplaySpec { rate, force: false, selection: "all".into(), ..ReplaySpec::default() }
}

async fn wait_for(replays: &Replays, id: &str, wanted: impl Fn(&ReplayView) -> bool) -> ReplayView {
    guarded(async {
        loop {
            let view = replays.get(id).unwrap();
            if wanted(&view) {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_delivers_each_letter_once_and_counts_what_became_of_it() {
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters((0..30).map(|n| if n % 10 == 9 { format!("never-{n}") } else { format!("o-{n}") }))
        .await;
    rig.handle.discard([5]).await.unwrap();
    let replays = Replays::open(None).unwrap();
    // One letter is named twice, and one does not exist.
    let ids: Vec<u64> = (0..30).chain([3, 99]).collect();
    let started = replays.start(&rig.handle, spec(None), ids, "ops").await.unwrap();
    assert_eq!((started.id.as_str(), started.state, started.total), ("r-1", ReplayState::Running, 31));
    let view = wait_for(&replays, "r-1", |view| view.state == ReplayState::Done).await;
    assert_eq!((view.published, view.succeeded, view.dead_again, view.skipped), (29, 26, 3, 2));
    assert_eq!((view.skips.discarded, view.skips.not_found), (1, 1));
    assert_eq!((view.actor.as_str(), view.selection.as_str()), ("ops", "all"));
    let mut delivered = rig.delivered.lock().unwrap().clone();
    delivered.sort();
    delivered.dedup();
    assert_eq!(delivered.len(), 26);
    assert_eq!(rig.calls.load(SeqCst), 30 + 29, "each letter was called once by the job");
    let error = replays.pause("r-1").await.unwrap_err();
    assert_eq!(error.to_string(), "replay `r-1` is done and can no longer be changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_was_replayed_three_times_needs_force() {
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters(["never-1".to_owned()]).await;
    let replays = Replays::open(None).unwrap();
    for number in 1..=4 {
        replays.start(&rig.handle, spec(None), [0], "ops").await.unwrap();
        let view = wait_for(&replays, &format!("r-{number}"), |view| view.state == ReplayState::Done).await;
        assert_eq!((view.dead_again, view.skips.too_often), if number < 4 { (1, 0) } else { (0, 1) });
    }
    let forced = ReplaySpec { force: true, ..spec(None) };
    replays.start(&rig.handle, forced, [0], "ops").await.unwrap();
    assert_eq!(wait_for(&replays, "r-5", |view| view.state == ReplayState::Done).await.dead_again, 1);
    let listed: Vec<String> = replays.list().into_iter().map(|view| view.id).collect();
    assert_eq!(listed, ["r-5", "r-4", "r-3", "r-2", "r-1"], "the latest comes first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_is_in_one_running_replay_only() {
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters((0..10).map(|n| format!("o-{n}"))).await;
    // Nothing is delivered while paused, so the letters that a job takes stay with it.
    rig.handle.pause().await.unwrap();
    let replays = Replays::open(None).unwrap();
    let ids: Vec<u64> = (0..10).collect();
    replays.start(&rig.handle, spec(None), ids.clone(), "ops").await.unwrap();
    wait_for(&replays, "r-1", |view| view.published == 10).await;
    replays.start(&rig.handle, spec(None), ids, "ops").await.unwrap();
    let second = wait_for(&replays, "r-2", |view| view.state == ReplayState::Done).await;
    assert_eq!((second.published, second.skips.in_replay), (0, 10));
    rig.handle.resume().await.unwrap();
    let first = wait_for(&replays, "r-1", |view| view.state == ReplayState::Done).await;
    assert_eq!((first.succeeded, rig.delivered.lock().unwrap().len()), (10, 10));
}

/// Two jobs over the same letters would share letters and pace: the second plan says which job has them, and takes
/// the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_waits_in_a_job_is_left_out_of_the_next_one() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let rig = if is_durable {
            Rig::new(Embedded::open(dir.path().join("store")).unwrap())
        } else {
            Rig::new(MemoryStores::new())
        };
        rig.run();
        rig.with_letters((0..10).map(|n| format!("o-{n}"))).await;
        let all = Selection::all(LetterState::Open);
        let ids = all.freeze(&rig.handle).await.unwrap();
        let replays = Replays::open(is_durable.then_some(dir.path())).unwrap();
        // One in a million seconds: the first letter is requeued, the others wait.
        replays.start(&rig.handle, spec(Some(1e-6)), &ids[..6], "ops").await.unwrap();
        wait_for(&replays, "r-1", |view| view.succeeded == 1).await;
        replays.pause("r-1").await.unwrap();

        let plan = replays.plan(&rig.handle, &all, PlanOptions::default()).await.unwrap();
        assert_eq!((&plan.ids[..], plan.taken.to_string().as_str()), (&ids[6..], "5 in r-1"));
        // Even a start without a plan takes only the letters that are in no other job.
        let second = replays.start(&rig.handle, spec(None), &ids[1..], "ops").await.unwrap();
        assert_eq!(second.total, 4, "{second:?}");
        wait_for(&replays, "r-2", |view| view.succeeded == 4).await;
        let refused = replays.start(&rig.handle, spec(None), &ids[1..6], "ops").await.unwrap_err();
        assert!(matches!(&refused, ReplayError::Taken(by) if by.to_string() == "5 in r-1"), "{refused}");

        // After a restart its letters still wait in it; an aborted job has none.
        if is_durable {
            let replays = Replays::open(Some(dir.path())).unwrap();
            let plan = replays.plan(&rig.handle, &all, PlanOptions::default()).await.unwrap();
            assert_eq!((plan.ids.len(), plan.taken.to_string().as_str()), (0, "5 in r-1"));
        }
        replays.abort("r-1").await.unwrap();
        let third = replays.start(&rig.handle, spec(None), ids, "ops").await.unwrap();
        wait_for(&replays, &third.id, |view| view.succeeded == 5).await;
        assert_eq!(rig.delivered.lock().unwrap().len(), 10, "each went once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_job_puts_nothing_back_and_an_aborted_one_never_again() {
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters((0..50).map(|n| format!("o-{n}"))).await;
    let replays = Replays::open(None).unwrap();
    let ids: Vec<u64> = (0..50).collect();
    // One a minute: only the first is requeued within this test.
    replays.start(&rig.handle, spec(Some(1.0 / 60.0)), ids, "ops").await.unwrap();
    wait_for(&replays, "r-1", |view| view.succeeded == 1).await;
    assert_eq!(replays.pause("r-1").await.unwrap().state, ReplayState::Paused);
    assert_eq!(replays.resume("r-1").await.unwrap().state, ReplayState::Running);
    assert_eq!(replays.pause("r-1").await.unwrap().state, ReplayState::Paused);
    let aborted = replays.abort("r-1").await.unwrap();
    assert_eq!((aborted.state, aborted.published), (ReplayState::Aborted, 1));
    assert!(matches!(
        replays.resume("r-1").await,
        Err(ReplayError::Over { state: ReplayState::Aborted, .. })
    ));
    assert_eq!(rig.handle.counts().await.unwrap().letters_open, 49, "the others are untouched");
    assert!(matches!(replays.abort("r-7").await, Err(ReplayError::NotFound(id)) if id == "r-7"));
}

/// A paused pipeline holds the letters that a job has requeued. Aborting the job frees them, for example to erase
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_job_frees_the_letters_that_a_paused_pipeline_holds() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let rig = if is_durable {
            Rig::new(Embedded::open(dir.path().join("store")).unwrap())
        } else {
            Rig::new(MemoryStores::new())
        };
        rig.run();
        rig.with_letters((0..500).map(|n| format!("o-{n}"))).await;
        let all = Selection::all(LetterState::Open);
        let ids = all.freeze(&rig.handle).await.unwrap();
        let before = rig.handle.letter(ids[7]).await.unwrap().unwrap();
        guarded(async {
            while rig.handle.figures().dead.total() < 500 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        rig.handle.pause().await.unwrap();
        let replays = Replays::open(None).unwrap();
        replays.start(&rig.handle, spec(None), ids.clone(), "ops").await.unwrap();
        wait_for(&replays, "r-1", |view| view.published == 500).await;
        assert_eq!(rig.handle.counts().await.unwrap().letters_replaying, 500);

        replays.abort("r-1").await.unwrap();
        guarded(until(&rig.handle, |counts| counts.letters_open == 500 && counts.pending() == 0)).await;
        let view = wait_for(&replays, "r-1", |view| view.under_way == 0).await;
        assert_eq!((view.published, view.untouched, view.dead_again), (0, 500, 0), "{view:?}");
        // The letter is unchanged and counts one replay.
        let after = rig.handle.letter(ids[7]).await.unwrap().unwrap();
        assert_eq!(
            (after.reason, after.dead_at, &after.group),
            (before.reason, before.dead_at, &before.group)
        );
        assert_eq!((after.meta.attempts, after.meta.replays), (before.meta.attempts, 1));
        assert_eq!(after.history.attempts(), before.history.attempts());

        // They are not delivered any more, until they are replayed again.
        rig.handle.resume().await.unwrap();
        let second = replays.start(&rig.handle, spec(None), &ids[..3], "ops").await.unwrap();
        wait_for(&replays, &second.id, |view| view.succeeded == 3).await;
        assert_eq!(rig.delivered.lock().unwrap().len(), 3);
        assert_eq!(rig.handle.figures().dead.total(), 500, "nothing died when it was taken back");
        assert_eq!(rig.handle.counts().await.unwrap().letters_open, 497);
    }
}

#[tokio::test]
async fn a_job_that_makes_no_sense_is_refused() {
    let rig = Rig::new(MemoryStores::new());
    let replays = Replays::open(None).unwrap();
    assert!(matches!(replays.start(&rig.handle, spec(None), [], "ops").await, Err(ReplayError::Nothing)));
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e6] {
        let refused = replays.start(&rig.handle, spec(Some(rate)), [1], "ops").await;
        assert!(matches!(refused, Err(ReplayError::Rate(_))), "{rate}");
    }
    assert!(replays.list().is_empty());
}

fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("replays")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_goes_on_after_a_restart_and_its_number_is_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let delivered_before = {
        let rig = Rig::new(Embedded::open(dir.path()).unwrap());
        let replays = Replays::open(Some(dir.path())).unwrap();
        let (handle, redrive) = (rig.handle.clone(), rig.redrive.clone());
        guarded(redrive.run_until(async {
            rig.with_letters((0..40).map(|n| format!("o-{n}"))).await;
            let ids: Vec<u64> = (0..40).collect();
            replays.start(&handle, spec(Some(1.0 / 60.0)), ids, "ops").await.unwrap();
            wait_for(&replays, "r-1", |view| view.succeeded == 1).await;
        }))
        .await
        .unwrap();
        rig.delivered.lock().unwrap().len()
    };
    assert_eq!(delivered_before, 1);
    assert_eq!(files(dir.path()), ["r-1.ids", "r-1.json"]);
    // Leftovers of writes interrupted by a crash are removed.
    std::fs::write(dir.path().join("replays/r-7.ids"), "1\n").unwrap();
    std::fs::write(dir.path().join("replays/r-1.new"), "{").unwrap();
    // The pace is stored in the job; this test makes it faster.
    let json = dir.path().join("replays/r-1.json");
    let text = std::fs::read_to_string(&json).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["rate"] = serde_json::Value::Null;
    // As if the process had died before it recorded the progress.
    value["offered"] = 0.into();
    value["published"] = 0.into();
    std::fs::write(&json, value.to_string()).unwrap();

    let rig = Rig::new(Embedded::open(dir.path()).unwrap());
    rig.broken.store(false, SeqCst);
    let replays = Replays::open(Some(dir.path())).unwrap();
    assert!(replays.faults().is_empty(), "{:?}", replays.faults());
    rig.run();
    assert_eq!(replays.attach(&rig.handle).unwrap(), ["r-1"]);
    assert!(replays.attach(&rig.handle).unwrap().is_empty(), "one task is enough");
    let view = wait_for(&replays, "r-1", |view| view.state == ReplayState::Done).await;
    assert_eq!((view.published, view.succeeded, view.dead_again, view.skipped), (40, 40, 0, 0));
    assert_eq!(rig.delivered.lock().unwrap().len(), 39, "the first was delivered before");
    let done = rig.handle.letters(Some(LetterState::Succeeded), None, 100).await.unwrap();
    assert!(done.iter().all(|letter| letter.meta.replays == 1), "each was put back once");
    guarded(async {
        while files(dir.path()) != ["r-1.json"] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    rig.broken.store(true, SeqCst);
    rig.with_letters(["x".to_owned()]).await;
    let next = replays.start(&rig.handle, spec(None), [40], "ops").await.unwrap();
    assert_eq!(next.id, "r-8");
}

/// An older version stored the names of tenants in a job's file, where an erasure does not look for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_an_older_job_is_written_again_without_its_tenants_and_the_job_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(Embedded::open(dir.path()).unwrap());
    rig.run();
    rig.with_letters((0..3).map(|n| format!("o-{n}"))).await;
    let written = include_str!("fixtures/replay-job-naming-tenants.json");
    let over = written.replace("r-7", "r-6").replace("running", "done");
    let replays = dir.path().join("replays");
    std::fs::create_dir(&replays).unwrap();
    std::fs::write(replays.join("r-7.json"), written).unwrap();
    std::fs::write(replays.join("r-7.ids"), "0\n1\n2\n").unwrap();
    std::fs::write(replays.join("r-6.json"), over).unwrap();

    let jobs = Replays::open(Some(dir.path())).unwrap();
    assert!(jobs.faults().is_empty(), "{:?}", jobs.faults());
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for (file, state) in [("r-7.json", "running"), ("r-6.json", "done")] {
        let now = std::fs::read_to_string(replays.join(file)).unwrap();
        assert!(!now.contains("tenants") && !now.contains("erika"), "{now}");
        let (now, written) = (value(&now), value(written));
        for kept in ["actor", "created", "engine_job", "ids_crc", "pipeline", "selection", "total"] {
            assert_eq!(now[kept], written[kept], "{kept} of {file}");
        }
        assert_eq!(now["state"], state);
    }
    assert_eq!(jobs.attach(&rig.handle).unwrap(), ["r-7"]);
    let view = wait_for(&jobs, "r-7", |view| view.state == ReplayState::Done).await;
    assert_eq!((view.published, view.succeeded, view.skipped), (3, 3, 0));
    assert_eq!(rig.delivered.lock().unwrap().len(), 3);
    assert_eq!(jobs.get("r-6").unwrap().state, ReplayState::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_job_or_selection_stops_that_job_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters((0..6).map(|n| format!("o-{n}"))).await;
    {
        let replays = Replays::open(Some(dir.path())).unwrap();
        for first in [0, 2, 4] {
            replays.start(&rig.handle, spec(Some(1e-6)), [first, first + 1], "ops").await.unwrap();
        }
        for id in ["r-1", "r-2", "r-3"] {
            replays.pause(id).await.unwrap();
        }
    }
    std::fs::write(dir.path().join("replays/r-1.json"), "{\"id\":").unwrap();
    std::fs::write(dir.path().join("replays/r-2.ids"), "2\n7\n").unwrap();
    let replays = Replays::open(Some(dir.path())).unwrap();
    assert_eq!(replays.faults().len(), 1);
    assert!(replays.faults()[0].contains("r-1.json"), "{:?}", replays.faults());
    assert_eq!(replays.attach(&rig.handle).unwrap(), ["r-2", "r-3"]);
    let failed = wait_for(&replays, "r-2", |view| view.state == ReplayState::Failed).await;
    assert!(failed.note.unwrap().contains("is damaged"));
    assert_eq!(replays.get("r-3").unwrap().state, ReplayState::Paused);
    assert_eq!(replays.get("r-1"), None);
}

/// A job's file is read back only if it is small, so long notes about the job must not make it large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_words_about_a_job_are_cut_and_it_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters((0..2).map(|n| format!("o-{n}"))).await;
    let replays = Replays::open(Some(dir.path())).unwrap();
    let wordy = ReplaySpec { selection: "é".repeat(3_000_000), ..spec(Some(1e-6)) };
    replays.start(&rig.handle, wordy, [0, 1], &"a".repeat(9_000)).await.unwrap();
    replays.pause("r-1").await.unwrap();
    let again = Replays::open(Some(dir.path())).unwrap();
    assert!(again.faults().is_empty(), "{:?}", again.faults());
    let view = again.get("r-1").unwrap();
    assert_eq!((view.selection.len(), view.actor.len()), (4096, 4096));
}

/// The modes of a directory and everything in it, except the content of the index directory.
fn modes(path: &Path, found: &mut Vec<(String, u32)>) {
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    found.push((path.display().to_string(), mode & 0o777));
    if path.is_dir() && !path.ends_with("index") {
        std::fs::read_dir(path).unwrap().for_each(|entry| modes(&entry.unwrap().path(), found));
    }
}

/// Messages may contain personal data: other users of the machine must not be able to read them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_is_stored_is_private_to_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let data = dir.path().join("new/data");
    let rig = Rig::new(Embedded::open(&data).unwrap());
    let run = rig.run();
    rig.with_letters(["a".to_owned()]).await;
    let replays = Replays::open(Some(&data)).unwrap();
    replays.start(&rig.handle, spec(None), [0], "ops").await.unwrap();
    let actions = redrive::actions::Actions::open(Some(&data)).unwrap();
    let mut found = Vec::new();
    modes(&dir.path().join("new"), &mut found);
    for name in ["/LOCK", "/FORMAT", "/journal", "/index", "/actions.ndjson", "/replays", ".json"] {
        assert!(found.iter().any(|(path, _)| path.ends_with(name)), "{name}: {found:?}");
    }
    for (path, mode) in &found {
        let wanted = if Path::new(path).is_dir() { 0o700 } else { 0o600 };
        assert_eq!(*mode, wanted, "{path}");
    }
    let mode = std::fs::metadata(dir.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "what was there is left as it is");
    drop(actions);
    run.abort();
}

/// Stores whose engines leave the given number of replays unanswered.
struct Away(MemoryStores, Arc<AtomicUsize>);

impl Stores for Away {
    fn open(&self, pipeline: &str, options: StoreOptions) -> Result<Box<dyn Engine>, EngineError> {
        let left = Arc::clone(&self.1);
        let is_away = move |asked| {
            let away =
                asked == Asked::Replay && left.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
            away.then(|| EngineError::Unavailable("the broker did not answer".into()))
        };
        Ok(Box::new(Faulty::new(self.0.open(pipeline, options)?, is_away)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_waits_for_an_engine_that_does_not_answer_and_goes_on() {
    let away = Arc::new(AtomicUsize::new(2));
    let rig = Rig::new(Away(MemoryStores::new(), Arc::clone(&away)));
    rig.run();
    rig.with_letters((0..10).map(|n| format!("o-{n}"))).await;
    let replays = Replays::open(None).unwrap();
    replays.start(&rig.handle, spec(None), (0..10).collect::<Vec<u64>>(), "ops").await.unwrap();
    let waiting = wait_for(&replays, "r-1", |view| view.note.is_some()).await;
    assert_eq!((waiting.state, waiting.published), (ReplayState::Running, 0));
    assert_eq!(waiting.note.as_deref(), Some("the broker did not answer"));
    let view = wait_for(&replays, "r-1", |view| view.state == ReplayState::Done).await;
    assert_eq!((view.published, view.succeeded, view.note), (10, 10, None));
    assert_eq!(away.load(SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_came_from_no_topic_are_not_put_back_onto_one() {
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters(["o-1".to_owned()]).await;
    let replays = Replays::open(None).unwrap();
    let onto_source = ReplaySpec { target: ReplayTarget::Source, ..spec(None) };
    let error = replays.start(&rig.handle, onto_source, [0], "ops").await.unwrap_err();
    assert!(matches!(error, ReplayError::NoSource(_)), "{error}");
    assert!(replays.list().is_empty());
}

/// A job with a canary of ten letters that stops at a failure rate of one in five.
fn watched() -> ReplaySpec {
    ReplaySpec { canary: 10, stop_at: Some(STOP_AT_DEFAULT), ..spec(None) }
}

/// A clock that moves only when it is told to.
struct ByHand(AtomicU64);

impl ByHand {
    fn advance(&self, span: Duration) {
        self.0.fetch_add(span.as_millis() as u64, SeqCst);
    }
}

impl Clock for ByHand {
    fn now(&self) -> Time {
        Time::from_millis(self.0.load(SeqCst))
    }
}

/// Calls fail, and nothing succeeds meanwhile: the letters are held and none ends, so nothing can be counted. Such a job
/// once waited for as long as `hold_max`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_that_is_only_held_says_why_and_stops_the_job_in_the_end() {
    const DIES: usize = 0;
    const FAILS: usize = 1;
    const WORKS: usize = 2;
    let answer = Arc::new(AtomicUsize::new(DIES));
    let answers = Arc::clone(&answer);
    let handler = move |_: Message| {
        let answer = answers.load(SeqCst);
        async move {
            match answer {
                DIES => Err(Failure::permanent("422 no")),
                FAILS => Err(Failure::transient("503 not now")),
                _ => Ok(()),
            }
        }
    };
    let pipeline = Pipeline::new("orders").policy(quick(3)).guard(GuardSettings::off()).handler_fn(handler);
    let clock = Arc::new(ByHand(AtomicU64::new(1_700_000_000_000)));
    let stores = MemoryStores::new();
    let built = Redrive::builder().engine(stores).clock(Arc::clone(&clock)).pipeline(pipeline).build();
    let redrive = built.unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let runs = redrive.clone();
    tokio::spawn(async move {
        let _ = runs.run_until(std::future::pending::<()>()).await;
    });
    clock.advance(Duration::from_hours(1));
    handle.ingest((0..30).map(|n| message(format!("o-{n}")))).await.unwrap();
    guarded(until(&handle, |c| c.letters_open == 30)).await;
    answer.store(WORKS, SeqCst);
    let last_good = handle.now();
    handle.ingest([message("good".to_owned())]).await.unwrap();
    guarded(until(&handle, |c| c.pending() == 0)).await;
    clock.advance(Duration::from_secs(10));
    answer.store(FAILS, SeqCst);

    let dir = tempfile::tempdir().unwrap();
    let replays = Replays::open(Some(dir.path())).unwrap();
    let ids = Selection::all(LetterState::Open).freeze(&handle).await.unwrap();
    replays.start(&handle, watched(), ids, "ops").await.unwrap();
    // Their first failures are counted; then nothing else has succeeded since.
    guarded(async {
        while replays.get("r-1").unwrap().held.is_none_or(|held| held.letters < 10) {
            clock.advance(Duration::from_millis(10));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let held = wait_for(&replays, "r-1", |view| view.held.is_some_and(|held| held.letters == 10)).await;
    assert_eq!((held.state, held.published, held.dead_again), (ReplayState::Running, 10, 0));
    assert_eq!(held.held.unwrap().why, HeldWhy::NoSuccess(Some(last_good)));

    // Too early to give up.
    clock.advance(Duration::from_mins(4));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(replays.get("r-1").unwrap().state, ReplayState::Running);
    // A call in between begins the wait anew, so time goes on until the job has stopped.
    guarded(async {
        while replays.get("r-1").unwrap().state != ReplayState::Stopped {
            clock.advance(Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let stopped = replays.get("r-1").unwrap();
    let note = stopped.note.unwrap();
    assert!(
        note.starts_with("10 of the first 10 failed (canary, limit 20 %); 10 of them were held"),
        "{note}"
    );

    // Its letters are dead letters again, and the others are untouched.
    guarded(until(&handle, |c| c.letters_open == 30 && c.pending() == 0)).await;
    let taken_back = wait_for(&replays, "r-1", |view| view.under_way == 0).await;
    assert_eq!((taken_back.state, taken_back.dead_again), (ReplayState::Stopped, 10));
    assert_eq!((taken_back.untouched, taken_back.held), (20, None));

    answer.store(WORKS, SeqCst);
    replays.resume("r-1").await.unwrap();
    // Time goes on, in case the failures have opened the breaker.
    tokio::spawn(async move {
        loop {
            clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let done = wait_for(&replays, "r-1", |view| view.state == ReplayState::Done).await;
    assert_eq!(
        (done.succeeded, done.dead_again, done.note),
        (20, 10, None),
        "nothing is taken back any more"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_that_fails_leaves_the_rest_untouched_until_somebody_resumes_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let replays = Replays::open(Some(dir.path())).unwrap();
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters((0..200).map(|n| format!("o-{n}"))).await;
    rig.broken.store(true, SeqCst);
    let ids: Vec<u64> = (0..200).collect();
    replays.start(&rig.handle, watched(), ids, "ops").await.unwrap();
    let stopped = wait_for(&replays, "r-1", |view| view.state == ReplayState::Stopped).await;
    assert_eq!((stopped.published, stopped.dead_again, stopped.untouched), (10, 10, 190));
    assert_eq!(stopped.note.as_deref(), Some("10 of the first 10 failed (canary, limit 20 %)"));
    assert_eq!(replays.pause("r-1").await.unwrap().state, ReplayState::Stopped, "it stands still already");

    // The stop is stored without anyone asking for it.
    guarded(async {
        while !std::fs::read_to_string(dir.path().join("replays/r-1.json")).unwrap().contains("\"stopped\"") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let again = Replays::open(Some(dir.path())).unwrap();
    assert_eq!(again.get("r-1").unwrap().note, stopped.note);

    rig.broken.store(false, SeqCst);
    let resumed = replays.resume("r-1").await.unwrap().state;
    assert!(matches!(resumed, ReplayState::Running | ReplayState::Done), "{resumed:?}");
    let done = wait_for(&replays, "r-1", |view| view.state == ReplayState::Done).await;
    assert_eq!((done.published, done.succeeded, done.dead_again, done.note), (200, 190, 10, None));
    let canary = done.canary.unwrap();
    assert_eq!((canary.letters, canary.succeeded, canary.is_over), (10, 10, true), "the second one");
    assert_eq!(rig.calls.load(SeqCst), 200 + 200, "each letter was called once by the job");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_stops_when_too_many_of_the_latest_letters_died_again() {
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    let name = |n: u64| if n >= 2_000 { format!("never-{n}") } else { format!("o-{n}") };
    rig.with_letters((0..8_000).map(name)).await;
    let replays = Replays::open(None).unwrap();
    replays.start(&rig.handle, watched(), (0..8_000).collect::<Vec<u64>>(), "ops").await.unwrap();
    let stopped = wait_for(&replays, "r-1", |view| view.state == ReplayState::Stopped).await;
    let note = stopped.note.clone().unwrap();
    assert!(note.ends_with(" of the last 50 failed (limit 20 %)"), "{note}");
    assert!(stopped.published < 4_000, "no more goes than may be under way: {stopped:?}");
    let ended = wait_for(&replays, "r-1", |view| view.under_way == 0).await;
    assert_eq!((ended.succeeded, ended.dead_again), (2_000, ended.published - 2_000), "all is counted");
    assert_eq!(replays.abort("r-1").await.unwrap().state, ReplayState::Aborted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_knows_what_may_have_been_delivered_and_what_was_superseded() {
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    let dead =
        [("o-1", "c-1", "acme"), ("o-2", "c-2", "acme"), ("vague-3", "c-3", "acme"), ("o-4", "c-1", "zeta")];
    let keyed = |(id, key, tenant): (&str, &str, &str)| {
        let message =
            Message::builder(id).key(key.as_bytes().to_vec()).tenant(tenant).payload(b"{}".to_vec());
        message.build().unwrap()
    };
    rig.handle.ingest(dead.map(keyed)).await.unwrap();
    guarded(until(&rig.handle, |c| c.letters_open == 4)).await;
    rig.broken.store(false, SeqCst);
    let selection = Selection::all(LetterState::Open);
    let before = Plan::make(&rig.handle, &selection, PlanOptions::default()).await.unwrap();
    assert_eq!((before.would_replay(), before.ambiguous, before.superseded.keys), (4, 1, 0));
    assert_eq!(before.ids, [0, 3, 1, 2], "tenants take turns");
    assert_eq!(before.tenants, [("acme".to_owned(), 3), ("zeta".to_owned(), 1)]);

    let skipping = PlanOptions { ambiguous: Ambiguous::Skip, ..PlanOptions::default() };
    // A later message of c-1 succeeds.
    rig.handle.ingest([keyed(("o-5", "c-1", "acme"))]).await.unwrap();
    guarded(async {
        while rig.delivered.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let plan = guarded(async {
        loop {
            let plan = Plan::make(&rig.handle, &selection, skipping).await.unwrap();
            if plan.superseded.keys > 0 {
                return plan;
            }
        }
    })
    .await;
    assert_eq!((plan.superseded.keys, plan.superseded.letters), (1, 2));
    assert_eq!(plan.superseded.shown, [("c-1".to_owned(), 2)]);
    assert_eq!((plan.ids, plan.ambiguous), (vec![0, 3, 1], 1), "what is ambiguous stays open");

    // A letter is not superseded by its own replay.
    rig.handle.replay([1]).await.unwrap();
    guarded(until(&rig.handle, |c| c.letters_succeeded == 1)).await;
    let after = Plan::make(&rig.handle, &selection, PlanOptions::default()).await.unwrap();
    assert_eq!((after.superseded.keys, after.would_replay()), (1, 3));
}

/// The process does not know about successes from before it started, so it cannot compare older letters with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_says_how_many_letters_are_older_than_what_it_knows_of_successes() {
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    let dead = |id: &str| Message::builder(id).payload(b"{}".to_vec());
    // Once a message is dead, the process has certainly started.
    rig.handle.ingest([dead("o-0").build().unwrap()]).await.unwrap();
    guarded(until(&rig.handle, |c| c.letters_open == 1)).await;
    let long_ago = redrive::Time::from_millis(1_000);
    let messages = [
        dead("o-1").key("c-1").created(long_ago).build().unwrap(),
        dead("o-2").key("c-2").build().unwrap(),
        dead("o-3").created(long_ago).build().unwrap(),
    ];
    rig.handle.ingest(messages).await.unwrap();
    guarded(until(&rig.handle, |c| c.letters_open == 4)).await;
    let selection = Selection::all(LetterState::Open);
    let plan = Plan::make(&rig.handle, &selection, PlanOptions::default()).await.unwrap();
    assert!(plan.superseded.since.is_some_and(|since| since > long_ago));
    assert_eq!((plan.superseded.keys, plan.superseded.older_letters), (0, 1), "the one with an old key");
}

fn plan(ids: impl Into<Vec<u64>>) -> Plan {
    Plan { ids: ids.into(), ..Plan::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_cannot_be_recorded_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    let count = rig.with_letters((0..3).map(|n| format!("o-{n}"))).await;
    let replays = Replays::open(Some(dir.path())).unwrap();
    let ids: Vec<u64> = (0..count).collect();
    let full = |_| async { Err(std::io::Error::other("the disk is full").into()) };
    let refused = replays.start_recorded(&rig.handle, spec(None), plan(&*ids), "ops", full).await;
    assert!(matches!(refused, Err(ReplayError::Unrecorded(_))), "{refused:?}");
    assert!(replays.list().is_empty());
    assert_eq!(files(dir.path()), Vec::<String>::new());
    assert_eq!(rig.handle.counts().await.unwrap().letters_open, count);
    // And the letters are free.
    let job = replays.start(&rig.handle, spec(None), ids, "ops").await.unwrap();
    wait_for(&replays, &job.id, |view| view.succeeded == count).await;
}

/// As a crash leaves it between the job's file and the line in the log of actions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_a_crash_left_unrecorded_goes_on_and_is_recorded_once() {
    let (dir, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    let count = rig.with_letters((0..3).map(|n| format!("o-{n}"))).await;
    let replays = Replays::open(Some(dir.path())).unwrap();
    let (from, to) = (dir.path().join("replays"), crashed.path().join("replays"));
    let copy_as_it_is = move |_| {
        std::fs::create_dir(&to).unwrap();
        for file in std::fs::read_dir(&from).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        async { Err(std::io::Error::other("killed").into()) }
    };
    let ids: Vec<u64> = (0..count).collect();
    let killed = replays.start_recorded(&rig.handle, spec(None), plan(ids), "alice", copy_as_it_is).await;
    assert!(killed.is_err(), "{killed:?}");

    for start in 1..=2 {
        let replays = Replays::open(Some(crashed.path())).unwrap();
        let actions = Actions::open(Some(crashed.path())).unwrap();
        replays.record_missing(&rig.handle, &actions);
        if start == 1 {
            // The job waits until it is recorded, so that the second start finds it again.
            guarded(async {
                while actions.list(None, 10).await.unwrap().is_empty() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
            continue;
        }
        assert_eq!(replays.attach(&rig.handle).unwrap(), ["r-1"]);
        wait_for(&replays, "r-1", |view| view.succeeded == count).await;
        let recorded = actions.list(None, 10).await.unwrap();
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        let start = &recorded[0];
        let told =
            (start.action, start.actor.as_str(), start.id.as_deref(), start.letters, start.note.as_deref());
        assert_eq!(told, (ActionKind::Replay, "alice", Some("r-1"), count, Some("all")));
    }
}

/// The caller may be a request whose client has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_starts_also_if_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    let count = rig.with_letters((0..3).map(|n| format!("o-{n}"))).await;
    let replays = Replays::open(Some(dir.path())).unwrap();
    let ids: Vec<u64> = (0..count).collect();
    let (reached, go) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (reaches, goes) = (Arc::clone(&reached), Arc::clone(&go));
    let record = move |_| {
        let (reaches, goes) = (Arc::clone(&reaches), Arc::clone(&goes));
        async move {
            reaches.notify_one();
            goes.notified().await;
            Ok(())
        }
    };
    tokio::select! {
        () = reached.notified() => {}
        _ = replays.start_recorded(&rig.handle, spec(None), plan(ids), "ops", record) => panic!("it waits"),
    }
    go.notify_one();
    guarded(until(&rig.handle, |counts| counts.letters_open == 0)).await;
    wait_for(&replays, "r-1", |view| view.succeeded == count).await;
}

/// Two tenants, one of whose letters wait in another job or would be skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_counts_the_letters_that_really_go_and_those_that_other_jobs_hold() {
    let replays = Replays::open(None).unwrap();
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    let of = |tenant: &str, n: u32| {
        Message::builder(format!("never-{tenant}-{n}")).tenant(tenant).build().unwrap()
    };
    let messages: Vec<Message> = (0..6).map(|n| of("acme", n)).chain((0..6).map(|n| of("zeta", n))).collect();
    rig.handle.ingest(messages).await.unwrap();
    guarded(until(&rig.handle, |counts| counts.letters_open == 12)).await;
    let all = Selection::all(LetterState::Open);
    let options = PlanOptions { tenant_max: Some(2), ..PlanOptions::default() };
    let planned = |plan: Plan| (plan.would_replay(), plan.too_often, plan.beyond_quota);
    assert_eq!(planned(replays.plan(&rig.handle, &all, options).await.unwrap()), (4, 0, 8));

    // The first three of acme are replayed three times, and would be skipped.
    for _ in 0..3 {
        let job = replays.start(&rig.handle, spec(None), [0, 1, 2], "ops").await.unwrap();
        wait_for(&replays, &job.id, |view| view.dead_again == 3).await;
        guarded(until(&rig.handle, |counts| counts.letters_open == 12)).await;
    }
    assert_eq!(planned(replays.plan(&rig.handle, &all, options).await.unwrap()), (4, 3, 5));

    // The first letter of another job has died again and is free; three wait in it: one of a tenant, two of the other.
    let slow = spec(Some(1.0 / 60.0));
    let held = replays.start(&rig.handle, slow, [4, 5, 10, 11], "ops").await.unwrap();
    wait_for(&replays, &held.id, |view| view.dead_again == 1).await;
    replays.pause(&held.id).await.unwrap();
    guarded(until(&rig.handle, |counts| counts.letters_open == 12)).await;
    let plan = replays.plan(&rig.handle, &all, options).await.unwrap();
    let taken: u64 = plan.taken.iter().map(|(_, letters)| letters).sum();
    assert_eq!(
        (taken, planned(plan).0),
        (3, 1),
        "one more of the tenant that has one in the job, none of the other"
    );
}

/// What somebody is asked to decide about are letters that go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_stay_open_ask_for_no_decision() {
    let replays = Replays::open(None).unwrap();
    let rig = Rig::new(MemoryStores::new());
    rig.run();
    rig.with_letters((0..4).map(|n| format!("vague-{n}"))).await;
    let all = Selection::all(LetterState::Open);
    let options = PlanOptions { tenant_max: Some(1), ..PlanOptions::default() };
    let plan = replays.plan(&rig.handle, &all, options).await.unwrap();
    assert_eq!((plan.would_replay(), plan.ambiguous, plan.beyond_quota), (1, 1, 3));
    let options = PlanOptions { ambiguous: Ambiguous::Skip, ..options };
    let plan = replays.plan(&rig.handle, &all, options).await.unwrap();
    assert_eq!((plan.would_replay(), plan.ambiguous, plan.beyond_quota), (0, 4, 0));
}
