//! The action log: what it records, discards and their undo, and how the file survives a crash.

mod support;

use std::io::Write;
use std::time::Duration;

use redrive::actions::{Action, ActionError, ActionKind, ActionStep, Actions};
use redrive::{
    Failure, GuardSettings, LetterState, MemoryStores, Message, Pipeline, PipelineHandle, Redrive, Time,
};
use support::{guarded, message, quick, until};

/// A pipeline with open letters 0 to `count`.
async fn with_letters(name: &str, count: usize) -> PipelineHandle {
    let handler = |_: Message| async { Err::<(), _>(Failure::permanent("422 no")) };
    // All of them are to be dead.
    let pipeline = Pipeline::new(name).policy(quick(0)).guard(GuardSettings::off()).handler_fn(handler);
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline(name).unwrap();
    handle.ingest((0..count).map(|n| message(format!("o-{n}")))).await.unwrap();
    tokio::spawn(async move { redrive.run_until(std::future::pending::<()>()).await });
    guarded(until(&handle, |c| c.letters_open == count as u64)).await;
    handle
}

async fn discarded(handle: &PipelineHandle) -> Vec<u64> {
    let letters = handle.letters(Some(LetterState::Discarded), None, 100).await.unwrap();
    letters.into_iter().map(|letter| letter.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discard_is_taken_back_by_its_name_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let handle = with_letters("orders", 8).await;
    let actions = Actions::open(Some(dir.path())).unwrap();
    let first = actions.discard(&handle, &[6, 1, 2, 1, 99], "ops", "GDPR ticket 881").await.unwrap();
    assert_eq!((first.id.as_deref(), first.discarded), (Some("d-1"), 3));
    assert!(first.undo_until.unwrap() > handle.now());
    // Letters that are already discarded do not belong to the second discard.
    let second = actions.discard(&handle, &[2, 3], "ops", "duplicates").await.unwrap();
    assert_eq!((second.id.as_deref(), second.discarded), (Some("d-2"), 1));
    let nothing = actions.discard(&handle, &[2, 3], "ops", "again").await.unwrap();
    assert_eq!((nothing.id, nothing.discarded), (None, 0));
    assert_eq!(discarded(&handle).await, [1, 2, 3, 6]);

    drop(actions);
    let actions = Actions::open(Some(dir.path())).unwrap();
    assert!(actions.faults().is_empty());
    assert_eq!(actions.undo(&handle, "d-1", "boss").await.unwrap().restored, 3);
    assert_eq!(discarded(&handle).await, [3]);
    assert_eq!(actions.undo(&handle, "d-1", "boss").await.unwrap().restored, 0);
    let third = actions.discard(&handle, &[7], "ops", "late").await.unwrap();
    assert_eq!(third.id.as_deref(), Some("d-3"));
    for wrong in ["d-9", "r-1", "", "d-"] {
        assert!(
            matches!(actions.undo(&handle, wrong, "ops").await, Err(ActionError::NotFound(_))),
            "{wrong}"
        );
    }
    let other = with_letters("bills", 1).await;
    let error = actions.undo(&other, "d-3", "ops").await.unwrap_err();
    assert_eq!(error.to_string(), "`d-3` is of pipeline `orders`");

    let told: Vec<_> = actions.list(None, 100).await.unwrap();
    let short: Vec<_> = told.iter().map(|a| (a.action.name(), a.actor.as_str(), a.letters)).collect();
    assert_eq!(
        short,
        [("discard", "ops", 3), ("discard", "ops", 1), ("undo", "boss", 3), ("discard", "ops", 1)]
    );
    assert_eq!(told[0].note.as_deref(), Some("GDPR ticket 881"));
    assert_eq!(told[2].id.as_deref(), Some("d-1"));
    let text = std::fs::read_to_string(dir.path().join("actions.ndjson")).unwrap();
    assert!(text.lines().next().unwrap().contains(r#""ids":"1-2,6""#), "{text}");
}

fn action(at: u64, actor: &str) -> Action {
    Action::new(Time::from_millis(at), actor, ActionKind::Pause, "orders")
}

#[tokio::test]
async fn a_list_is_bounded_and_begins_where_it_is_asked_to() {
    for dir in [None, Some(tempfile::tempdir().unwrap())] {
        let actions = Actions::open(dir.as_ref().map(tempfile::TempDir::path)).unwrap();
        for at in 1..=20 {
            actions.record(action(at, "ops")).await.unwrap();
        }
        let times = |list: Vec<Action>| list.iter().map(|a| a.at.as_millis()).collect::<Vec<_>>();
        assert_eq!(times(actions.list(None, 3).await.unwrap()), [18, 19, 20]);
        assert_eq!(times(actions.list(Some(Time::from_millis(19)), 100).await.unwrap()), [19, 20]);
        assert!(actions.list(Some(Time::MAX), 100).await.unwrap().is_empty());
        // Those of another pipeline do not count.
        let mail = Action::new(Time::from_millis(5), "ops", ActionKind::Pause, "mail");
        actions.record(mail).await.unwrap();
        assert_eq!(times(actions.list_of("mail", None, 3).await.unwrap()), [5]);
        assert_eq!(times(actions.list_of("orders", None, 3).await.unwrap()), [18, 19, 20]);
    }
}

/// A crash may tear the last line at any byte; the lines before it stay complete, and so does the next one.
#[tokio::test]
async fn a_torn_last_line_is_cut_off_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("actions.ndjson");
    let actions = Actions::open(Some(dir.path())).unwrap();
    actions.record(action(1, "a")).await.unwrap();
    let one = std::fs::read(&path).unwrap();
    actions.record(action(2, "b")).await.unwrap();
    let two = std::fs::read(&path).unwrap();
    drop(actions);
    for cut in one.len()..=two.len() {
        std::fs::write(&path, &two[..cut]).unwrap();
        let actions = Actions::open(Some(dir.path())).unwrap();
        let torn = cut > one.len() && cut < two.len();
        assert_eq!(actions.faults().len(), usize::from(torn), "cut at {cut}: {:?}", actions.faults());
        if torn {
            assert!(actions.faults()[0].contains("torn by a crash"), "{:?}", actions.faults());
        }
        actions.record(action(3, "c")).await.unwrap();
        let actors: Vec<_> = actions.list(None, 9).await.unwrap().into_iter().map(|a| a.actor).collect();
        let expected: &[&str] = if cut == two.len() { &["a", "b", "c"] } else { &["a", "c"] };
        assert_eq!(actors, expected, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_line_that_cannot_be_read_is_reported_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("actions.ndjson");
    let actions = Actions::open(Some(dir.path())).unwrap();
    actions.record(action(1, "a")).await.unwrap();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\xff rot\n").unwrap();
    drop(actions);
    let actions = Actions::open(Some(dir.path())).unwrap();
    assert_eq!(actions.faults(), [format!("{}: line 2 cannot be read", path.display())]);
    actions.record(action(2, "b")).await.unwrap();
    assert_eq!(actions.list(None, 9).await.unwrap().len(), 2);
}

/// Without a file only the latest actions are kept, and the name of a dropped one is not mistaken for another action.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_in_memory_are_bounded() {
    let handle = with_letters("orders", 2).await;
    let actions = Actions::open(None).unwrap();
    actions.discard(&handle, &[0], "ops", "early").await.unwrap();
    for at in 0..10_000 {
        actions.record(action(at, "ops")).await.unwrap();
    }
    actions.discard(&handle, &[1], "ops", "late").await.unwrap();
    // The last discard has two lines, and is one action.
    assert_eq!(actions.list(None, usize::MAX).await.unwrap().len(), 9_999);
    assert!(
        matches!(actions.undo(&handle, "d-1", "ops").await, Err(ActionError::NotFound(id)) if id == "d-1")
    );
    assert_eq!(actions.undo(&handle, "d-2", "ops").await.unwrap().restored, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undoing_an_old_discard_leaves_a_newer_one_of_the_same_letter_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let handle = with_letters("orders", 3).await;
    let actions = Actions::open(Some(dir.path())).unwrap();
    actions.discard(&handle, &[0, 1], "ops", "first").await.unwrap();
    actions.undo(&handle, "d-1", "ops").await.unwrap();
    let second = actions.discard(&handle, &[1, 2], "ops", "second").await.unwrap();
    assert_eq!(second.id.as_deref(), Some("d-2"));
    // The first undo is repeated: by now letter 1 belongs to the second discard.
    assert_eq!(actions.undo(&handle, "d-1", "ops").await.unwrap().restored, 0);
    assert_eq!(discarded(&handle).await, [1, 2]);
    assert_eq!(actions.undo(&handle, "d-2", "ops").await.unwrap().restored, 2);
}

/// The latest action, once it has been finished.
async fn finished(actions: &Actions) -> Action {
    guarded(async {
        loop {
            let latest = actions.list(None, 10).await.unwrap().pop().unwrap();
            if latest.to_json().get("unfinished").is_none() {
                return latest;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discard_and_an_undo_that_were_cut_short_are_finished_at_the_next_start_and_their_records_are_true()
{
    let (dir, count) = (tempfile::tempdir().unwrap(), 20_000);
    let handle = with_letters("orders", count as usize).await;
    let ids: Vec<u64> = (0..count).collect();
    let actions = Actions::open(Some(dir.path())).unwrap();
    tokio::select! {
        biased;
        () = until(&handle, |counts| counts.letters_open < count) => {}
        _ = actions.discard(&handle, &ids, "ops", "ticket 881") => panic!("it was not cut short"),
    }
    guarded(until(&handle, |counts| counts.letters_open > 0)).await;
    let listed = actions.list(None, 10).await.unwrap();
    assert_eq!((listed.len(), listed[0].to_json()["unfinished"].as_bool()), (1, Some(true)), "{listed:?}");
    drop(actions);
    // One dies again before the next start: that is not what was asked about.
    let survivor = count - 1;
    handle.replay([survivor]).await.unwrap();
    guarded(until(&handle, |counts| counts.letters_replaying == 0)).await;

    let actions = Actions::open(Some(dir.path())).unwrap();
    actions.attach(&handle);
    let discard = finished(&actions).await;
    let recorded = (discard.action, discard.letters, discard.actor.as_str(), discard.note.as_deref());
    assert_eq!(recorded, (ActionKind::Discard, count - 1, "ops", Some("ticket 881")));
    assert_eq!(handle.counts().await.unwrap().letters_open, 1);

    tokio::select! {
        biased;
        () = until(&handle, |counts| counts.letters_open > 1) => {}
        _ = actions.undo(&handle, "d-1", "boss") => panic!("it was not cut short"),
    }
    let listed = actions.list(None, 10).await.unwrap();
    let steps: Vec<_> = listed.iter().map(|action| (action.action.name(), action.step)).collect();
    assert_eq!(steps, [("discard", ActionStep::Done), ("undo", ActionStep::Asked)]);
    drop(actions);
    let actions = Actions::open(Some(dir.path())).unwrap();
    actions.attach(&handle);
    let undo = finished(&actions).await;
    assert_eq!((undo.action, undo.letters, undo.actor.as_str()), (ActionKind::Undo, count - 1, "boss"));
    assert_eq!(handle.counts().await.unwrap().letters_open, count);
    assert_eq!(actions.list(None, 10).await.unwrap().len(), 2, "a discard and an undo, both with one name");
}

/// Whoever takes an interrupted discard back has said what to do about it: the next start leaves it at that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discard_that_was_cut_short_and_undone_is_not_gone_on_with() {
    let (dir, count) = (tempfile::tempdir().unwrap(), 20_000);
    let handle = with_letters("orders", count as usize).await;
    let ids: Vec<u64> = (0..count).collect();
    let actions = Actions::open(Some(dir.path())).unwrap();
    tokio::select! {
        biased;
        () = until(&handle, |counts| counts.letters_open < count) => {}
        _ = actions.discard(&handle, &ids, "ops", "ticket 881") => panic!("it was not cut short"),
    }
    let restored = actions.undo(&handle, "d-1", "ops").await.unwrap().restored;
    assert!((1..count).contains(&restored), "{restored}");
    drop(actions);
    let actions = Actions::open(Some(dir.path())).unwrap();
    actions.attach(&handle);
    // Waits for what the start had to finish, of which there is nothing.
    actions.discard(&handle, &[0], "ops", "another").await.unwrap();
    let told: Vec<_> = actions.list(None, 10).await.unwrap();
    let told: Vec<_> =
        told.iter().map(|action| (action.action.name(), action.step, action.letters)).collect();
    let done = ActionStep::Done;
    assert_eq!(told, [("discard", done, restored), ("undo", done, restored), ("discard", done, 1)]);
    assert_eq!(handle.counts().await.unwrap().letters_open, count - 1);
}
