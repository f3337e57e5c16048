//! Groups of dead letters: counted on a real disk across restarts, selected by filter, and marked.

mod support;

use std::path::Path;
use std::sync::Arc;

use redrive::actions::{ActionError, ActionKind, Actions};
use redrive::internal::engine::GroupState::{self, Open, Regressed, Resolved, Snoozed};
use redrive::internal::engine::{GroupSummary, Handling};
use redrive::letters::{Filter, Selection};
use redrive::{
    Clock, Embedded, Failure, GroupId, GroupRule, LetterState, Message, Pipeline, PipelineHandle, Redrive,
    VirtualClock,
};
use support::{guarded, message, quick, until};

/// A pipeline on disk whose messages fail as their ids say: `t-…` with a timeout, `c-…` with a currency error, `w-…`
/// each with its own word, others with a 404.
struct Running {
    handle: PipelineHandle,
    stop: tokio::sync::oneshot::Sender<()>,
    run: tokio::task::JoinHandle<()>,
}

/// A distinct word for each number, without anything that a fingerprint replaces.
fn word(mut number: u32) -> String {
    let mut word = String::from("word");
    for _ in 0..3 {
        word.push_str(["ba", "co", "du", "fe", "gi", "ho", "ku", "la", "me", "no"][number as usize % 10]);
        number /= 10;
    }
    word + ["", "ta"][number as usize]
}

fn failure(message: &Message) -> Failure {
    let id = message.id();
    match &id[..2] {
        "t-" => Failure::transient(format!("timeout after {} ms calling pay.internal:8443", id.len() * 100)),
        "w-" => Failure::permanent(format!("no word for {}", word(id[2..].parse().unwrap()))),
        "c-" => Failure::permanent("422 field `currency` must be one of EUR, USD, GBP"),
        _ => Failure::permanent(format!("404 customer {id} not found")),
    }
}

fn start(dir: &Path, clock: &Arc<VirtualClock>, rules: &[GroupRule]) -> Running {
    let handler = |message: Message| async move { Err::<(), _>(failure(&message)) };
    let pipeline = Pipeline::new("orders").policy(quick(0)).handler_fn(handler);
    let pipeline = rules.iter().cloned().fold(pipeline, Pipeline::group);
    let pipeline = pipeline.guard(redrive::GuardSettings::off()).breaker(redrive::BreakerSettings::off());
    let engine = Embedded::open(dir).unwrap();
    let redrive =
        Redrive::builder().engine(engine).clock(Arc::clone(clock)).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(async move {
        redrive.run_until(async { drop(stopped.await) }).await.unwrap();
    });
    Running { handle, stop, run }
}

impl Running {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        guarded(self.run).await.unwrap();
    }

    async fn kill(&self, ids: &[&str], open: u64) {
        self.handle.ingest(ids.iter().map(|id| message(*id))).await.unwrap();
        guarded(until(&self.handle, |counts| counts.letters_open == open)).await;
    }
}

fn told(groups: &[GroupSummary]) -> Vec<(String, u64, GroupState)> {
    groups.iter().map(|group| (group.title().to_owned(), group.figures.open, group.state)).collect()
}

async fn numbers(handle: &PipelineHandle, filter: &str) -> Vec<u64> {
    let filter = Some(Filter::parse(filter).unwrap());
    let selection = Selection { filter, state: Some(LetterState::Open), ..Selection::default() };
    selection.freeze(handle).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_are_grouped_by_cause_and_counted_over_restarts_replays_and_discards() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let actions = Actions::open(Some(dir.path())).unwrap();
    let running = start(dir.path(), &clock, &[]);
    running.kill(&["t-1", "t-22", "t-333", "c-1", "c-2", "x-9"], 6).await;
    let groups = actions.groups(&running.handle).await.unwrap();
    let expected = [
        ("timeout after <n> ms calling <host>".to_owned(), 3, GroupState::Open),
        ("422 field `currency` must be one of <list>".to_owned(), 2, GroupState::Open),
        ("404 customer <id> not found".to_owned(), 1, GroupState::Open),
    ];
    assert_eq!(told(&groups), expected);
    assert_eq!(groups[0].figures.per_minute, 3);
    assert_eq!(groups[0].sample.as_ref().map(|letter| letter.id), Some(0));
    let timeouts = groups[0].group();
    assert_eq!(numbers(&running.handle, &format!("group:{timeouts}")).await, [0, 1, 2]);
    assert_eq!(numbers(&running.handle, &format!("-group:{timeouts}")).await, [3, 4, 5]);
    assert_eq!(numbers(&running.handle, &format!("group:{timeouts} id:t-22")).await, [1]);

    actions.discard(&running.handle, &[1, 3], "ops", "no").await.unwrap();
    running.stop().await;
    let running = start(dir.path(), &clock, &[]);
    let groups = actions.groups(&running.handle).await.unwrap();
    let open: Vec<u64> = groups.iter().map(|group| group.figures.open).collect();
    assert_eq!(open, [2, 1, 1], "the same after a restart");
    actions.undo(&running.handle, "d-1", "ops").await.unwrap();
    assert_eq!(numbers(&running.handle, &format!("group:{timeouts}")).await, [0, 1, 2]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolved_group_regresses_and_decisions_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let running = start(dir.path(), &clock, &[]);
    running.kill(&["t-1", "c-1", "x-9"], 3).await;
    let actions = Actions::open(Some(dir.path())).unwrap();
    let by_title = |groups: &[GroupSummary], word: &str| {
        groups
            .iter()
            .find(|group| group.title().contains(word))
            .map(|group| (group.group(), group.state))
            .unwrap()
    };
    let groups = actions.groups(&running.handle).await.unwrap();
    let (timeouts, currency, gone) =
        (by_title(&groups, "timeout").0, by_title(&groups, "currency").0, by_title(&groups, "404").0);
    let handle = &running.handle;
    let note = Some("ticket 881");
    actions.mark_group(handle, timeouts, Handling::Resolved, note, "ops").await.unwrap();
    let more = Handling::Snoozed { until: None, more: Some(2) };
    actions.mark_group(handle, currency, more, None, "ops").await.unwrap();
    let until =
        Handling::Snoozed { until: Some(clock.now().plus(std::time::Duration::from_mins(1))), more: None };
    actions.mark_group(handle, gone, until, None, "ops").await.unwrap();
    let unknown = actions.mark_group(handle, GroupId::from_number(1), Handling::Resolved, None, "ops").await;
    assert!(matches!(unknown, Err(ActionError::NoGroup { .. })));

    let states =
        |groups: &[GroupSummary]| ["timeout", "currency", "404"].map(|word| by_title(groups, word).1);
    assert_eq!(states(&actions.groups(handle).await.unwrap()), [Resolved, Snoozed, Snoozed]);
    clock.advance(std::time::Duration::from_secs(1));
    running.kill(&["t-2", "c-2"], 5).await;
    assert_eq!(states(&actions.groups(handle).await.unwrap()), [Regressed, Snoozed, Snoozed]);
    running.kill(&["c-3"], 6).await;
    assert_eq!(states(&actions.groups(handle).await.unwrap()), [Regressed, Open, Snoozed]);
    clock.advance(std::time::Duration::from_mins(1));
    assert_eq!(states(&actions.groups(handle).await.unwrap()), [Regressed, Open, Open]);

    running.stop().await;
    drop(actions);
    let actions = Actions::open(Some(dir.path())).unwrap();
    let running = start(dir.path(), &clock, &[]);
    let groups = actions.groups(&running.handle).await.unwrap();
    assert_eq!(states(&groups), [Regressed, Open, Open]);
    let back = groups.iter().find(|group| group.group() == timeouts).unwrap();
    assert_eq!(back.mark.as_ref().and_then(|mark| mark.note.as_deref()), note);
    // A new decision: letters from before it do not count, and the note stays.
    actions.mark_group(&running.handle, timeouts, Handling::Resolved, None, "ops").await.unwrap();
    let groups = actions.groups(&running.handle).await.unwrap();
    assert_eq!(states(&groups)[0], Resolved);
    assert_eq!(
        groups.iter().find(|group| group.group() == timeouts).unwrap().mark.as_ref().unwrap().note.as_deref(),
        note
    );
    let decisions = actions.list(None, 10).await.unwrap();
    let noted: Vec<Option<&str>> = decisions
        .iter()
        .filter(|action| action.action == ActionKind::GroupResolve)
        .map(|action| action.note.as_deref())
        .collect();
    assert_eq!(noted, [note, None], "the log has the note with the decision that it was given with");
    let reopened = actions.mark_group(&running.handle, timeouts, Handling::Open, None, "ops").await.unwrap();
    assert!(reopened.mark.unwrap().is_empty(), "the note goes with the decision");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_joins_new_letters_and_leaves_those_that_are_stored_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let actions = Actions::open(None).unwrap();
    let running = start(dir.path(), &clock, &[]);
    running.kill(&["t-1", "x-9"], 2).await;
    running.stop().await;
    let rule = GroupRule::new("customer*not found", "unknown customers").unwrap();
    let running = start(dir.path(), &clock, &[rule]);
    running.kill(&["x-10", "x-11"], 4).await;
    let groups = actions.groups(&running.handle).await.unwrap();
    let titles: Vec<(&str, u64)> = groups.iter().map(|group| (group.title(), group.figures.open)).collect();
    assert_eq!(titles[0], ("unknown customers", 2));
    assert!(titles.contains(&("404 customer <id> not found", 1)), "{titles:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_open_letters_is_resolved_and_an_undone_discard_is_no_arrival() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let actions = Actions::open(Some(dir.path())).unwrap();
    let running = start(dir.path(), &clock, &[]);
    running.kill(&["t-1", "t-22", "c-1"], 3).await;
    let groups = actions.groups(&running.handle).await.unwrap();
    let timeouts = groups[0].group();
    assert_eq!(groups[0].figures.per_minute, 2);
    actions.discard(&running.handle, &[0], "ops", "no").await.unwrap();
    actions.undo(&running.handle, "d-1", "ops").await.unwrap();
    let groups = actions.groups(&running.handle).await.unwrap();
    assert_eq!((groups[0].figures.open, groups[0].figures.per_minute), (2, 2), "it died once");

    // All letters are discarded, as after a successful replay: the group can still be marked.
    actions.discard(&running.handle, &[0, 1], "ops", "done").await.unwrap();
    let resolved =
        actions.mark_group(&running.handle, timeouts, Handling::Resolved, None, "ops").await.unwrap();
    assert_eq!((resolved.state, resolved.title()), (Resolved, "timeout after <n> ms calling <host>"));
    clock.advance(std::time::Duration::from_secs(1));
    running.kill(&["t-333"], 2).await;
    let groups = actions.groups(&running.handle).await.unwrap();
    let back = groups.iter().find(|group| group.group() == timeouts).unwrap();
    assert_eq!(back.state, Regressed);
    let none =
        actions.mark_group(&running.handle, GroupId::from_number(1), Handling::Resolved, None, "ops").await;
    assert!(matches!(none, Err(ActionError::NoGroup { .. })));
    running.stop().await;
}

/// Each letter has a different error: those beyond the limit of groups are counted together, and none is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_a_thousand_groups_letters_are_counted_as_other_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(VirtualClock::default());
    let actions = Actions::open(None).unwrap();
    let mut running = start(dir.path(), &clock, &[]);
    let ids: Vec<String> = (0..1_007).map(|n| format!("w-{n}")).collect();
    running.kill(&ids.iter().map(String::as_str).collect::<Vec<_>>(), 1_007).await;
    for when in ["as they died", "after a restart"] {
        let groups = actions.groups(&running.handle).await.unwrap();
        assert_eq!(groups.len(), 1_001, "{when}");
        let other: Vec<u64> = groups
            .iter()
            .filter(|group| group.group() == GroupId::OTHER)
            .map(|group| group.figures.open)
            .collect();
        assert_eq!(other, [7], "{when}");
        assert_eq!(groups.iter().map(|group| group.figures.open).sum::<u64>(), 1_007, "{when}");
        assert_eq!(numbers(&running.handle, "group:other").await.len(), 7, "{when}");
        running.stop().await;
        running = start(dir.path(), &clock, &[]);
    }
    running.stop().await;
}
