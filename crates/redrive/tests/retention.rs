//! `letter_retention` by the clock: hourly sweeps in virtual time, on the memory and the embedded engine.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use redrive::actions::{Actions, RETENTION_ACTOR, sweep_hourly};
use redrive::replay::{ReplaySpec, Replays};
use redrive::{
    BreakerSettings, Embedded, Failure, GuardSettings, LetterState, MemoryStores, Message, Pipeline, Redrive,
    Stores, VirtualClock,
};
use support::{guarded, message, quick, until};

const DAY: Duration = Duration::from_hours(24);

/// Letters from two days; each sweep takes the expired ones, each in its own hour, and no others.
async fn old_letters_go_when_their_time_has_come(stores: impl Stores + 'static) {
    let clock = Arc::new(VirtualClock::default());
    let handler = |_: Message| async { Err(Failure::permanent("422 no")) };
    let pipeline = Pipeline::new("orders").policy(quick(0)).handler_fn(handler);
    let pipeline = pipeline.guard(GuardSettings::off()).breaker(BreakerSettings::off());
    let redrive =
        Redrive::builder().engine(stores).clock(Arc::clone(&clock)).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    tokio::spawn(async move { redrive.run_until(std::future::pending::<()>()).await });
    for (day, open) in [(0, 3), (3, 5)] {
        clock.advance(DAY * day);
        let ids = (0..open).map(|n| message(format!("o-{day}-{n}")));
        handle.ingest(ids.skip(if day == 0 { 0 } else { 3 })).await.unwrap();
        guarded(until(&handle, |counts| counts.letters_open == open)).await;
    }
    // From here on, the hours between two sweeps take no real time.
    tokio::time::pause();
    let actions = Actions::open(None).unwrap();
    let (sweeps, expired) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (swept, counted) = (Arc::clone(&sweeps), Arc::clone(&expired));
    tokio::spawn(sweep_hourly(
        actions.clone(),
        handle.clone(),
        DAY * 5,
        Replays::open(None).unwrap(),
        move |sweep| {
            swept.fetch_add(1, SeqCst);
            counted.fetch_add(sweep.unwrap().discarded, SeqCst);
        },
    ));
    // The first letters are three days old now.
    for (hours, gone) in [(47, 0), (2, 3), (69, 3), (4, 5), (100, 5)] {
        clock.advance(Duration::from_hours(hours));
        let whole = sweeps.load(SeqCst) + 2;
        while sweeps.load(SeqCst) < whole {
            tokio::time::sleep(Duration::from_mins(10)).await;
        }
        let counts = handle.counts().await.unwrap();
        assert_eq!((counts.letters_discarded, counts.letters_open), (gone, 5 - gone), "{hours} hours later");
        assert_eq!(expired.load(SeqCst), gone);
    }
    // Each sweep that found something has one line with its letters, and can be undone.
    let listed = actions.list(None, 1_000).await.unwrap();
    let lines: Vec<_> = listed.iter().map(|line| (line.actor.as_str(), line.letters)).collect();
    assert_eq!(lines, [(RETENTION_ACTOR, 3), (RETENTION_ACTOR, 2)]);
    assert_eq!(listed[0].note.as_deref(), Some("died more than 120h ago"));
    let restored = actions.undo(&handle, listed[1].id.as_deref().unwrap(), "ops").await.unwrap();
    assert_eq!(restored.restored, 2);
    assert_eq!(handle.letters(Some(LetterState::Open), None, 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn old_letters_go_when_their_time_has_come_in_memory() {
    old_letters_go_when_their_time_has_come(MemoryStores::new()).await;
}

#[tokio::test]
async fn old_letters_go_when_their_time_has_come_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    old_letters_go_when_their_time_has_come(Embedded::open(dir.path()).unwrap()).await;
}

/// Somebody wants them to be delivered, only not yet.
#[tokio::test]
async fn letters_that_a_paused_replay_holds_stay_until_it_is_over() {
    let handler = |_: Message| async { Err(Failure::permanent("422 no")) };
    let pipeline = Pipeline::new("orders").policy(quick(0)).handler_fn(handler);
    let pipeline = pipeline.guard(GuardSettings::off()).breaker(BreakerSettings::off());
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    tokio::spawn(async move { redrive.run_until(std::future::pending::<()>()).await });
    handle.ingest((0..5).map(|n| message(format!("o-{n}")))).await.unwrap();
    guarded(until(&handle, |counts| counts.letters_open == 5)).await;
    let (actions, replays) = (Actions::open(None).unwrap(), Replays::open(None).unwrap());
    // Slow enough to be paused before the second letter.
    let spec = ReplaySpec { rate: Some(0.1), ..ReplaySpec::default() };
    let job = replays.start(&handle, spec, [1, 3], "ops").await.unwrap().id;
    replays.pause(&job).await.unwrap();
    let held = replays.get(&job).unwrap();
    let held = held.total - held.published;
    assert!(held > 0, "{held}");
    let swept = actions.expire(&handle, Duration::ZERO, &replays).await.unwrap();
    guarded(until(&handle, |counts| counts.letters_open + counts.letters_discarded == 5)).await;
    assert_eq!(handle.counts().await.unwrap().letters_discarded, swept.discarded);
    assert!((3..=5 - held).contains(&swept.discarded), "{swept:?}, {held} are held");
    let open = handle.letters(Some(LetterState::Open), None, 9).await.unwrap();
    assert!(open.iter().any(|letter| letter.id == 3), "{open:?}");
    replays.abort(&job).await.unwrap();
    guarded(until(&handle, |counts| counts.letters_open + counts.letters_discarded == 5)).await;
    actions.expire(&handle, Duration::ZERO, &replays).await.unwrap();
    guarded(until(&handle, |counts| counts.letters_open == 0 && counts.letters_discarded == 5)).await;
}
