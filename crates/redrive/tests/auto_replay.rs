//! Auto-replay on a running pipeline: which letters it takes and leaves, and when it gives up.

mod support;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::actions::{Action, ActionKind, Actions};
use redrive::internal::replay::auto::{self, AUTO_ACTOR};
use redrive::replay::{AutoReplay, ReplayState, ReplayView, Replays};
use redrive::{
    BreakerSettings, Embedded, Failure, GuardSettings, LetterState, MemoryStores, Message, Pipeline,
    PipelineHandle, Reason, Redrive, Stores,
};
use support::{guarded, message, quick, until};
use tokio::task::JoinHandle;

const HEALTHY_FOR: Duration = Duration::from_millis(40);

/// A pipeline with letters that can heal (`o-…`) and others that never do, with its controller.
struct Rig {
    handle: PipelineHandle,
    broken: Arc<AtomicBool>,
    replays: Replays,
    actions: Actions,
}

impl Rig {
    fn new(stores: impl Stores + 'static) -> Self {
        let broken = Arc::new(AtomicBool::new(true));
        let is_broken = Arc::clone(&broken);
        let seen = Mutex::new(HashSet::new());
        let handler = move |m: Message| {
            let fails = is_broken.load(SeqCst);
            let is_first = seen.lock().unwrap().insert(m.id().to_owned());
            async move {
                match m.id() {
                    id if id.starts_with("permanent") => Err(Failure::permanent("422 no")),
                    id if id.starts_with("gone") => Err(Failure::gone("410 gone")),
                    id if id.starts_with("poison") => panic!("bad header"),
                    id if id.starts_with("good") => Ok(()),
                    id if id.starts_with("once") && is_first => Err(Failure::transient("503 not now")),
                    id if id.starts_with("once") => Ok(()),
                    _ if fails => Err(Failure::transient("503 not now")),
                    _ => Ok(()),
                }
            }
        };
        // Without the outage gate, all messages die while the sink is broken.
        let policy = quick(0).crash(1, "1ms").outage_gate(false);
        let breaker = BreakerSettings { enabled: false, ..BreakerSettings::default() };
        let pipeline = Pipeline::new("orders")
            .policy(policy)
            .breaker(breaker)
            .guard(GuardSettings::off())
            .handler_fn(handler);
        let redrive = Redrive::builder().engine(stores).pipeline(pipeline).build().unwrap();
        let handle = redrive.pipeline("orders").unwrap();
        tokio::spawn(async move {
            let _ = redrive.run_until(std::future::pending::<()>()).await;
        });
        Self { handle, broken, replays: Replays::open(None).unwrap(), actions: Actions::open(None).unwrap() }
    }

    async fn with_letters(&self, ids: impl IntoIterator<Item = String>) {
        let messages: Vec<Message> = ids.into_iter().map(message).collect();
        let count = messages.len() as u64;
        let before = self.handle.counts().await.unwrap().letters_open;
        self.handle.ingest(messages).await.unwrap();
        guarded(until(&self.handle, |c| c.letters_open == before + count)).await;
    }

    /// Starts the controller, and ingests other messages whose success shows that the sink is healthy.
    fn start(&self) -> JoinHandle<()> {
        self.start_with(HEALTHY_FOR)
    }

    fn start_with(&self, healthy_for: Duration) -> JoinHandle<()> {
        let traffic = self.handle.clone();
        tokio::spawn(async move {
            for n in 0.. {
                if traffic.ingest([message(format!("good-{n}"))]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let settings =
            AutoReplay { rate: 100_000.0, healthy_for, age_max: Duration::from_hours(1), tenant_max: None };
        let (handle, replays, actions) = (self.handle.clone(), self.replays.clone(), self.actions.clone());
        tokio::spawn(auto::run(settings, handle, replays, actions, |error| panic!("{error}")))
    }

    async fn wait_for(&self, wanted: impl Fn(&[ReplayView]) -> bool) -> Vec<ReplayView> {
        guarded(async {
            loop {
                let jobs = self.replays.list();
                if wanted(&jobs) {
                    return jobs;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
    }

    /// The action log, once the controller has recorded this many stops.
    async fn actions_with_stops(&self, stops: usize) -> Vec<Action> {
        guarded(async {
            loop {
                let actions = self.actions().await;
                let is_stop = |action: &&Action| action.action == ActionKind::AutoReplayStop;
                if actions.iter().filter(is_stop).count() == stops {
                    return actions;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
    }

    async fn actions(&self) -> Vec<Action> {
        self.actions.list(None, 100).await.unwrap()
    }
}

async fn what_may_heal_is_replayed_and_nothing_else(stores: impl Stores + 'static) {
    let rig = Rig::new(stores);
    let never = ["permanent", "gone", "poison"].map(|kind| (0..5).map(move |n| format!("{kind}-{n}")));
    rig.with_letters((0..30).map(|n| format!("o-{n}")).chain(never.into_iter().flatten())).await;
    rig.broken.store(false, SeqCst);
    rig.start();
    let jobs = rig.wait_for(|jobs| jobs.first().is_some_and(|job| job.state == ReplayState::Done)).await;
    let job = jobs.last().unwrap();
    assert_eq!((job.total, job.succeeded, job.actor.as_str()), (30, 30, AUTO_ACTOR));
    assert_eq!(job.canary.map(|canary| canary.succeeded), Some(10));
    let counts = rig.handle.counts().await.unwrap();
    assert_eq!((counts.letters_open, counts.letters_succeeded), (15, 30));
    let left = rig.handle.letters(Some(LetterState::Open), None, 99).await.unwrap();
    assert!(left.iter().all(|letter| letter.meta.replays == 0), "{left:?}");
    let poison = left.iter().filter(|letter| letter.reason == Reason::PoisonPill);
    assert!(poison.map(|letter| letter.message.id()).all(|id| id.starts_with("poison")));
    let actions = rig.actions().await;
    let first = &actions[0];
    assert_eq!((first.action, first.actor.as_str(), first.letters), (ActionKind::Replay, AUTO_ACTOR, 30));
    assert_eq!(first.note.as_deref(), Some("the sink has been healthy for 40ms"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_may_heal_are_replayed_once_the_sink_is_healthy_and_others_are_not() {
    what_may_heal_is_replayed_and_nothing_else(MemoryStores::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_may_heal_are_replayed_on_disk_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    what_may_heal_is_replayed_and_nothing_else(Embedded::open(dir.path()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_that_recur_switch_it_off_until_somebody_decides() {
    let rig = Rig::new(MemoryStores::new());
    rig.with_letters((0..60).map(|n| format!("o-{n}"))).await;
    rig.start();
    let stopped = |jobs: &[ReplayView]| jobs.iter().filter(|job| job.state == ReplayState::Stopped).count();
    let jobs = rig.wait_for(|jobs| stopped(jobs) == 2).await;
    // Each job took its first ten letters; those of the first job are not taken a second time.
    assert_eq!(jobs.iter().map(|job| (job.total, job.dead_again)).collect::<Vec<_>>(), [(50, 10), (60, 10)]);
    let actions = rig.actions_with_stops(2).await;
    assert!(actions.iter().all(|action| action.actor == AUTO_ACTOR), "{actions:?}");
    let last = actions.last().unwrap().note.clone().unwrap();
    assert!(last.ends_with("; off until r-2 is resumed or aborted"), "{last}");

    // The sink is repaired, but auto-replay still waits for an operator to decide about the stopped jobs.
    rig.broken.store(false, SeqCst);
    rig.replays.abort("r-2").await.unwrap();
    let jobs = rig.wait_for(|jobs| jobs[0].id == "r-3" && jobs[0].state == ReplayState::Done).await;
    assert_eq!((jobs[0].total, jobs[0].succeeded), (40, 40), "each letter was tried once by it");
}

/// A job of ten letters or fewer is all canary, so nothing of it is left to stop when it fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_jobs_that_fail_switch_it_off_as_well() {
    let rig = Rig::new(MemoryStores::new());
    rig.with_letters((0..5).map(|n| format!("o-{n}"))).await;
    rig.start();
    rig.actions_with_stops(1).await;
    rig.with_letters(["o-5".to_owned()]).await;
    let actions = rig.actions_with_stops(2).await;
    let told: Vec<_> =
        actions.iter().map(|a| (a.action.name(), a.letters, a.note.as_deref().unwrap())).collect();
    let why = "the sink has been healthy for 40ms";
    assert_eq!(
        told,
        [
            ("replay", 5, why),
            (
                "auto_replay_stop",
                5,
                "5 of the first 5 failed (canary, limit 20 %); waits before it tries again"
            ),
            ("replay", 1, why),
            (
                "auto_replay_stop",
                1,
                "1 of the first 1 failed (canary, limit 20 %); off until r-2 is resumed or aborted"
            ),
        ]
    );
    let jobs = rig.replays.list();
    assert!(jobs.iter().all(|job| job.state == ReplayState::Stopped), "{jobs:?}");
    let waited = jobs[0].created.since(jobs[1].created);
    assert!(waited >= HEALTHY_FOR * 6, "it waited {waited:?} after the first");

    // Switched off: letters that could heal stay until an operator decides.
    rig.broken.store(false, SeqCst);
    rig.with_letters((0..4).map(|n| format!("once-{n}"))).await;
    tokio::time::sleep(HEALTHY_FOR * 10).await;
    assert_eq!(rig.replays.list().len(), 2);
    rig.replays.resume("r-2").await.unwrap();
    let jobs = rig.wait_for(|jobs| jobs[0].id == "r-3" && jobs[0].state == ReplayState::Done).await;
    assert_eq!((jobs[0].total, jobs[0].succeeded), (4, 4));
    assert_eq!(jobs[1].state, ReplayState::Done, "it was resumed, and nothing was left of it");
}

/// The stopped jobs switch it off, and they are stored: a restart changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_switched_it_off_is_known_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(MemoryStores::new());
    rig.replays = Replays::open(Some(dir.path())).unwrap();
    rig.actions = Actions::open(Some(dir.path())).unwrap();
    rig.with_letters((0..60).map(|n| format!("o-{n}"))).await;
    let controller = rig.start();
    rig.actions_with_stops(2).await;
    guarded(async {
        while !["r-1", "r-2"].iter().all(|job| state_in_file(dir.path(), job) == "stopped") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    controller.abort();
    assert!(controller.await.unwrap_err().is_cancelled());

    rig.replays = Replays::open(Some(dir.path())).unwrap();
    rig.actions = Actions::open(Some(dir.path())).unwrap();
    assert!(rig.replays.faults().is_empty(), "{:?}", rig.replays.faults());
    rig.replays.attach(&rig.handle).unwrap();
    rig.broken.store(false, SeqCst);
    rig.start();
    tokio::time::sleep(HEALTHY_FOR * 10).await;
    let jobs = rig.replays.list();
    assert!(jobs.len() == 2 && jobs.iter().all(|job| job.state == ReplayState::Stopped), "{jobs:?}");
    rig.actions_with_stops(2).await;
    // The controller is running: once an operator has decided, it goes on.
    rig.replays.abort("r-2").await.unwrap();
    let jobs = rig.wait_for(|jobs| jobs[0].id == "r-3" && jobs[0].state == ReplayState::Done).await;
    assert_eq!((jobs[0].total, jobs[0].succeeded), (40, 40), "{jobs:?}");
}

fn state_in_file(dir: &Path, job: &str) -> String {
    let text = std::fs::read_to_string(dir.join(format!("replays/{job}.json"))).unwrap_or_default();
    let job: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    job["state"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_died_a_moment_ago_is_left_for_the_next_job() {
    let healthy_for = HEALTHY_FOR * 10;
    let rig = Rig::new(MemoryStores::new());
    let controller = rig.start_with(healthy_for);
    let dying = rig.handle.clone();
    tokio::spawn(async move {
        for n in 0.. {
            if dying.ingest([message(format!("once-{n}"))]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    rig.wait_for(|jobs| !jobs.is_empty()).await;
    controller.abort();
    let jobs = rig.wait_for(|jobs| jobs[0].state == ReplayState::Done).await;
    assert!(jobs.len() == 1 && jobs[0].succeeded > 0, "{jobs:?}");
    let taken = rig.handle.letters(Some(LetterState::Succeeded), None, 10_000).await.unwrap();
    assert_eq!(taken.len() as u64, jobs[0].succeeded);
    let latest = taken.iter().map(|letter| letter.dead_at).max().unwrap();
    assert!(latest.plus(healthy_for) <= jobs[0].created, "{latest:?}, {jobs:?}");
}

/// Nobody looks at the plan of auto-replay: it takes no letter that may be older than what was delivered since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_with_a_key_is_left_to_people_if_it_is_older_than_what_is_known_of_successes() {
    let rig = Rig::new(MemoryStores::new());
    let keyed = |id: &str| Message::builder(id).key("c-1").payload(b"{}".to_vec());
    rig.with_letters(["o-0".to_owned()]).await;
    let old = keyed("o-1").created(redrive::Time::from_millis(1_000)).build().unwrap();
    rig.handle.ingest([old, keyed("o-2").build().unwrap()]).await.unwrap();
    guarded(until(&rig.handle, |c| c.letters_open == 3)).await;
    rig.broken.store(false, SeqCst);
    rig.start();
    let jobs = rig.wait_for(|jobs| jobs.first().is_some_and(|job| job.state == ReplayState::Done)).await;
    assert_eq!((jobs[0].total, jobs[0].succeeded), (2, 2));
    let left = rig.handle.letters(Some(LetterState::Open), None, 9).await.unwrap();
    assert_eq!(left.iter().map(|letter| letter.message.id()).collect::<Vec<_>>(), ["o-1"]);
}
