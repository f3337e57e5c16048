//! Edits of dead letters: planned, carried out, delivered by a replay, undone by name, and kept across a restart.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::actions::{ActionError, ActionKind, Actions, EditPlan, EditUndone, EditWish, NotUndone};
use redrive::internal::engine::edit::EDITS_MAX;
use redrive::internal::letters::json_text::JsonText;
use redrive::internal::letters::select;
use redrive::letters::edit::{Condition, MessageChange, MessageIds, Pointer};
use redrive::letters::{Filter, Selection};
use redrive::messages;
use redrive::replay::{ReplaySpec, ReplayState, ReplayView, Replays};
use redrive::{
    Accepted, BreakerSettings, Embedded, Failure, GuardSettings, LetterState, MemoryStores, Message,
    MessagePhase, Pipeline, PipelineHandle, Redrive, Stores,
};
use support::{guarded, quick, until};

type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// A pipeline that accepts only orders in `EUR`, and the messages its handler was given.
struct Running {
    handle: PipelineHandle,
    seen: Seen,
    stop: tokio::sync::oneshot::Sender<()>,
    run: tokio::task::JoinHandle<()>,
}

fn start(stores: impl Stores + 'static) -> Running {
    start_with(stores, |pipeline| pipeline)
}

fn start_with(stores: impl Stores + 'static, more: impl Fn(Pipeline) -> Pipeline) -> Running {
    let seen = Seen::default();
    let heard = Arc::clone(&seen);
    let handler = move |message: Message| {
        let payload = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
        heard.lock().unwrap().push((message.id().to_owned(), payload.clone()));
        async move {
            match &payload {
                payload if payload.contains("\"EUR\"") => Ok(()),
                payload if payload.contains("lost") => {
                    Err(Failure::permanent("the answer was lost").ambiguous())
                }
                _ => Err(Failure::permanent("422 field `currency` must be one of EUR, USD, GBP")),
            }
        }
    };
    let pipeline = Pipeline::new("orders").policy(quick(0).outage_gate(false)).handler_fn(handler);
    let pipeline = more(pipeline.guard(GuardSettings::off()).breaker(BreakerSettings::off()));
    let redrive = Redrive::builder().engine(stores).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = tokio::spawn(async move {
        redrive.run_until(async { drop(stopped.await) }).await.unwrap();
    });
    Running { handle, seen, stop, run }
}

impl Running {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        guarded(self.run).await.unwrap();
    }

    /// Ingests these payloads as messages o-0, o-1, … and waits until they are dead.
    async fn kill(&self, payloads: &[&str]) {
        let message = |(n, payload): (usize, &&str)| {
            Message::builder(format!("o-{n}")).payload((*payload).to_owned()).build().unwrap()
        };
        self.handle.ingest(payloads.iter().enumerate().map(message)).await.unwrap();
        let count = payloads.len() as u64;
        guarded(until(&self.handle, |counts| counts.letters_open == count)).await;
    }

    async fn payload(&self, id: u64) -> String {
        let letter = self.handle.letter(id).await.unwrap().unwrap();
        String::from_utf8(letter.message.payload().unwrap_or_default().to_vec()).unwrap()
    }

    async fn edits(&self, id: u64) -> Vec<String> {
        self.handle.letter(id).await.unwrap().unwrap().edits
    }
}

fn set(pointer: &str, value: &str) -> EditWish {
    let value = JsonText::parse(value.as_bytes()).unwrap();
    let set = vec![(Pointer::parse(pointer).unwrap(), value)];
    EditWish { change: MessageChange { set, ..MessageChange::default() }, ..EditWish::default() }
}

/// The letters that an undo skipped, by reason.
fn reasons(undone: &EditUndone) -> Vec<(NotUndone, Vec<u64>)> {
    undone.skipped.iter().map(|(reason, skipped)| (*reason, skipped.letters.clone())).collect()
}

async fn selected(handle: &PipelineHandle, filter: &str) -> Vec<u64> {
    let filter = Some(Filter::parse(filter).unwrap());
    Selection { filter, ..Selection::default() }.freeze(handle).await.unwrap()
}

const GERMAN: &str = r#"{"order_id":18446744073709551617,"currency":"eur","region":"DE"}"#;
const FRENCH: &str = r#"{"order_id":2,"currency":"eur","region":"FR"}"#;

async fn an_edit_is_planned_made_replayed_and_undone(stores: impl Stores + 'static) {
    let running = start(stores);
    let actions = Actions::open(None).unwrap();
    running.kill(&[GERMAN, FRENCH, "plain", GERMAN]).await;
    let german = Some(Condition::parse("/region == \"DE\"").unwrap());
    let wish = EditWish { condition: german, ..set("/currency", "\"EUR\"") };
    let all = [0, 1, 2, 3, 99];

    let plan = actions.plan_edit(&running.handle, &all, &wish).await.unwrap();
    assert_eq!((plan.id.as_deref(), plan.letters, plan.ambiguous), (Some("e-1"), 2, 0));
    assert_eq!((plan.not_json.count, &plan.not_json.letters[..]), (1, &[2][..]));
    let (first, differences) = plan.first.clone().unwrap();
    assert_eq!((first, differences.len()), (0, 1));
    assert_eq!(differences[0].before.as_deref(), Some("\"eur\""));
    assert_eq!(differences[0].after.as_deref(), Some("\"EUR\""));
    assert_eq!(running.payload(0).await, GERMAN, "a plan changes nothing");

    let done = actions.edit(&running.handle, &all, &wish, "ops").await.unwrap();
    assert_eq!(done, EditPlan { ..plan });
    let edited = GERMAN.replace("eur", "EUR");
    assert_eq!(running.payload(0).await, edited, "every other byte is as it was");
    assert_eq!(running.payload(1).await, FRENCH);
    assert_eq!(running.edits(0).await, ["e-1"]);
    assert_eq!(selected(&running.handle, "edit:e-1").await, [0, 3]);
    assert_eq!(selected(&running.handle, "-edit:e-1 state:open").await, [1, 2]);
    let original = running.handle.message_before(0, "e-1").await.unwrap().unwrap();
    assert_eq!(original.payload(), Some(GERMAN.as_bytes()));
    let again = actions.edit(&running.handle, &all, &wish, "ops").await.unwrap();
    assert_eq!((again.id, again.letters, again.unchanged), (None, 0, 2));

    // The replay delivers the edited message, under the same id.
    running.handle.replay(vec![0]).await.unwrap();
    guarded(until(&running.handle, |counts| counts.letters_succeeded == 1)).await;
    assert_eq!(running.seen.lock().unwrap().last(), Some(&("o-0".to_owned(), edited)));

    let log = actions.list(None, 10).await.unwrap();
    let line = log.last().unwrap();
    assert_eq!((line.action, line.id.as_deref(), line.letters), (ActionKind::Edit, Some("e-1"), 2));
    assert_eq!(line.to_json()["fields"], serde_json::json!(["/currency"]));

    // One has succeeded and stays as it was delivered; the other gets its original message back.
    let undone = actions.undo_edit(&running.handle, "e-1", "boss").await.unwrap();
    assert_eq!((undone.restored, reasons(&undone)), (1, vec![(NotUndone::Replayed, vec![0])]));
    assert_eq!(running.payload(3).await, GERMAN);
    assert!(running.edits(3).await.is_empty());
    let repeated = actions.undo_edit(&running.handle, "e-1", "boss").await.unwrap();
    assert_eq!(repeated.restored, 0);
    let expected = vec![(NotUndone::UndoneAlready, vec![3]), (NotUndone::Replayed, vec![0])];
    assert_eq!(reasons(&repeated), expected);
    let log = actions.list(None, 10).await.unwrap();
    let undos: Vec<u64> =
        log.iter().filter(|line| line.action == ActionKind::EditUndo).map(|line| line.letters).collect();
    assert_eq!(undos, [1], "the log counts what changed, and an undo that restores nothing is no action");
    let error = actions.undo_edit(&running.handle, "e-9", "boss").await.unwrap_err();
    assert!(matches!(error, ActionError::NoEdit { .. }), "{error}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_is_planned_made_replayed_and_undone_in_memory() {
    an_edit_is_planned_made_replayed_and_undone(MemoryStores::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_is_planned_made_replayed_and_undone_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    an_edit_is_planned_made_replayed_and_undone(Embedded::open(dir.path()).unwrap()).await;
}

fn on_disk(dir: &Path) -> Running {
    start(Embedded::open(dir).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_and_their_originals_survive_a_restart_and_another_death() {
    let dir = tempfile::tempdir().unwrap();
    let running = on_disk(dir.path());
    let actions = Actions::open(Some(dir.path())).unwrap();
    running.kill(&[GERMAN]).await;
    actions.edit(&running.handle, &[0], &set("/currency", "\"usd\""), "ops").await.unwrap();
    running.stop().await;

    let running = on_disk(dir.path());
    assert_eq!(running.edits(0).await, ["e-1"]);
    // It dies again as edited, and the original is still known.
    running.handle.replay(vec![0]).await.unwrap();
    guarded(until(&running.handle, |counts| counts.letters_open == 1 && counts.letters_replaying == 0)).await;
    assert_eq!(running.payload(0).await, GERMAN.replace("eur", "usd"));
    assert_eq!(running.edits(0).await, ["e-1"]);
    running.stop().await;

    let running = on_disk(dir.path());
    let actions = Actions::open(Some(dir.path())).unwrap();
    // The numbering of edits continues after a restart.
    let second = actions.edit(&running.handle, &[0], &set("/currency", "\"chf\""), "ops").await.unwrap();
    assert_eq!(second.id.as_deref(), Some("e-2"));
    // The later edit must be undone first: undoing the first alone would undo the second as well.
    let undone = actions.undo_edit(&running.handle, "e-1", "ops").await.unwrap();
    assert_eq!((undone.restored, reasons(&undone)), (0, vec![(NotUndone::EditedAgain, vec![0])]));
    assert_eq!(actions.undo_edit(&running.handle, "e-2", "ops").await.unwrap().restored, 1);
    assert_eq!(running.payload(0).await, GERMAN.replace("eur", "usd"));
    // The first edit was delivered: its undo would bring back a message of which the receiver has seen an edited
    // version.
    let undone = actions.undo_edit(&running.handle, "e-1", "ops").await.unwrap();
    assert_eq!((undone.restored, reasons(&undone)), (0, vec![(NotUndone::Replayed, vec![0])]));
    assert_eq!(running.payload(0).await, GERMAN.replace("eur", "usd"));
    running.stop().await;
}

/// A letter that was discarded since is skipped, with the reason; and a letter whose edit is undone twice counts
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_says_of_each_letter_why_it_was_skipped() {
    let running = start(MemoryStores::new());
    let actions = Actions::open(None).unwrap();
    running.kill(&[GERMAN, FRENCH, GERMAN, FRENCH]).await;
    let edited =
        actions.edit(&running.handle, &[0, 1, 2, 3], &set("/currency", "\"usd\""), "ops").await.unwrap();
    assert_eq!(edited.letters, 4);
    actions.discard(&running.handle, &[0], "ops", "gone").await.unwrap();
    actions.erase(&running.handle, &[3], "ops", "GDPR ticket 881").await.unwrap();
    actions.edit(&running.handle, &[1], &set("/currency", "\"chf\""), "ops").await.unwrap();
    let undone = actions.undo_edit(&running.handle, "e-1", "ops").await.unwrap();
    let expected = vec![
        (NotUndone::EditedAgain, vec![1]),
        (NotUndone::Discarded, vec![0]),
        (NotUndone::Erased, vec![3]),
    ];
    assert_eq!((undone.restored, reasons(&undone)), (1, expected));
    running.stop().await;
}

/// The record is written before the change. If the store then refuses letters, the log must not say that they
/// changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_counts_the_letters_that_an_edit_has_changed_and_not_those_that_were_planned() {
    let dir = tempfile::tempdir().unwrap();
    let running = on_disk(dir.path());
    let actions = Actions::open(Some(dir.path())).unwrap();
    running.kill(&[GERMAN, FRENCH]).await;
    // Versions of 15 MB: the fourth exceeds the maximum size of a letter.
    let large = |fill: &str| EditWish {
        change: MessageChange { payload: Some(fill.repeat(15 << 20).into()), ..MessageChange::default() },
        ..EditWish::default()
    };
    for fill in ["a", "b", "c"] {
        assert_eq!(actions.edit(&running.handle, &[0], &large(fill), "ops").await.unwrap().letters, 1);
    }
    let partly = actions.edit(&running.handle, &[0, 1], &large("d"), "ops").await.unwrap();
    assert_eq!((partly.letters, &partly.refused.letters[..]), (1, &[0][..]));
    let none = actions.edit(&running.handle, &[0], &large("e"), "ops").await.unwrap();
    assert_eq!((none.letters, none.refused.count), (0, 1));
    for actions in [actions, Actions::open(Some(dir.path())).unwrap()] {
        let log = actions.list(None, 10).await.unwrap();
        let lines: Vec<_> = log.iter().map(|line| (line.id.as_deref().unwrap(), line.letters)).collect();
        assert_eq!(lines, [("e-1", 1), ("e-2", 1), ("e-3", 1), ("e-4", 1), ("e-5", 0)]);
        assert_eq!(log[3].note.as_deref(), Some("2 planned"));
    }
    let actions = Actions::open(Some(dir.path())).unwrap();
    let undone = actions.undo_edit(&running.handle, "e-4", "ops").await.unwrap();
    assert_eq!((undone.restored, undone.skipped_count()), (1, 0), "only what it changed belongs to an edit");
    running.stop().await;
}

/// The remaining letters are unchanged, because their new content was never recorded. So the record must not
/// name them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_that_was_cut_short_is_recorded_at_the_next_start_with_the_letters_that_have_it() {
    let (dir, count) = (tempfile::tempdir().unwrap(), 1_000);
    let running = on_disk(dir.path());
    running.kill(&vec![GERMAN; count]).await;
    let ids: Vec<u64> = (0..count as u64).collect();
    let wish = set("/currency", "\"EUR\"");
    {
        let actions = Actions::open(Some(dir.path())).unwrap();
        tokio::select! {
            biased;
            () = async { while running.edits(0).await.is_empty() { tokio::task::yield_now().await } } => {}
            _ = actions.edit(&running.handle, &ids, &wish, "ops") => panic!("it was not cut short"),
        }
        let listed = actions.list(None, 10).await.unwrap();
        assert_eq!((listed.len(), listed[0].letters), (1, 1_000));
        assert_eq!(listed[0].to_json()["unfinished"], true, "{listed:?}");
    }
    let actions = Actions::open(Some(dir.path())).unwrap();
    actions.attach(&running.handle);
    guarded(async {
        while actions.list(None, 10).await.unwrap()[0].to_json().get("unfinished").is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let edited = selected(&running.handle, "edit:e-1").await;
    assert!(!edited.is_empty() && edited.len() < count, "{} of {count}", edited.len());
    let listed = actions.list(None, 10).await.unwrap();
    let recorded = (listed.len(), listed[0].letters, listed[0].actor.as_str(), listed[0].note.as_deref());
    assert_eq!(recorded, (1, edited.len() as u64, "ops", Some("1,000 planned")));
    assert_eq!(listed[0].fields, ["/currency"]);
    // The rest is edited under the next name, and undoing the interrupted edit reverts everything it has changed.
    let rest = actions.edit(&running.handle, &ids, &wish, "ops").await.unwrap();
    assert_eq!((rest.id.as_deref(), rest.letters), (Some("e-2"), (count - edited.len()) as u64));
    let undone = actions.undo_edit(&running.handle, "e-1", "ops").await.unwrap();
    assert_eq!((undone.restored, undone.skipped_count()), (edited.len() as u64, 0));
    assert!(selected(&running.handle, "edit:e-1").await.is_empty());
    running.stop().await;
}

/// A letter that waits in a job is delivered as it is when its turn comes; one that was requeued cannot be edited.
async fn an_edit_during_a_replay_changes_what_the_job_has_not_put_back_yet(stores: impl Stores + 'static) {
    let running = start(stores);
    let (actions, replays) = (Actions::open(None).unwrap(), Replays::open(None).unwrap());
    let count = 300;
    running.kill(&vec![GERMAN; count]).await;
    running.seen.lock().unwrap().clear();
    let ids: Vec<u64> = (0..count as u64).collect();
    let spec = ReplaySpec { rate: Some(100.0), ..ReplaySpec::default() };
    replays.start(&running.handle, spec, &ids[..], "ops").await.unwrap();
    let job = |wanted: fn(&ReplayView) -> bool| {
        let replays = replays.clone();
        guarded(async move {
            while !wanted(&replays.get("r-1").unwrap()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    job(|job| job.dead_again >= 10).await;
    let done = actions.edit(&running.handle, &ids, &set("/currency", "\"EUR\""), "ops").await.unwrap();
    let before = running.seen.lock().unwrap().len();
    assert_eq!(replays.get("r-1").unwrap().state, ReplayState::Running, "the job is long enough");
    let edited = selected(&running.handle, "edit:e-1").await;
    assert_eq!(done.letters, edited.len() as u64);
    assert_eq!(done.letters + done.refused.count, count as u64, "what was under way is named: {done:?}");

    job(|job| job.state == ReplayState::Done).await;
    let view = replays.get("r-1").unwrap();
    assert_eq!((view.published, view.skipped), (count as u64, 0), "{view:?}");
    let seen = running.seen.lock().unwrap().clone();
    let messages: BTreeSet<&String> = seen.iter().map(|(id, _)| id).collect();
    assert_eq!((seen.len(), messages.len()), (count, count), "each went once");
    for (id, payload) in &seen[before..] {
        let number: u64 = id[2..].parse().unwrap();
        assert_eq!(payload.contains("EUR"), edited.contains(&number), "{id} went as {payload}");
    }
    let (fixed, old): (Vec<_>, Vec<_>) = seen.iter().partition(|(_, payload)| payload.contains("EUR"));
    assert!(old.len() >= 10 && !fixed.is_empty(), "{} and {}", old.len(), fixed.len());
    assert_eq!((view.succeeded, view.dead_again), (fixed.len() as u64, old.len() as u64));

    // A requeued letter is refused by name, and is delivered unchanged.
    running.handle.pause().await.unwrap();
    let open = selected(&running.handle, "state:open").await[0];
    running.handle.replay([open]).await.unwrap();
    let refused = actions.edit(&running.handle, &[open], &set("/region", "\"FR\""), "ops").await.unwrap();
    assert_eq!((refused.id, refused.letters, refused.refused.letters), (None, 0, vec![open]));
    assert_eq!(refused.refused.why.as_deref(), Some("it is replaying by now"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_during_a_replay_changes_what_the_job_has_not_put_back_yet_in_memory() {
    an_edit_during_a_replay_changes_what_the_job_has_not_put_back_yet(MemoryStores::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_during_a_replay_changes_what_the_job_has_not_put_back_yet_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let stores = Embedded::open(dir.path()).unwrap();
    an_edit_during_a_replay_changes_what_the_job_has_not_put_back_yet(stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_an_attempt_may_have_been_applied_somebody_has_to_choose_the_id() {
    let dir = tempfile::tempdir().unwrap();
    let running = on_disk(dir.path());
    let actions = Actions::open(None).unwrap();
    running.kill(&[r#"{"note":"lost"}"#, GERMAN]).await;
    let mut wish = set("/currency", "\"EUR\"");
    let plan = actions.plan_edit(&running.handle, &[0, 1], &wish).await.unwrap();
    assert_eq!((plan.letters, plan.ambiguous), (2, 1));
    let error = actions.edit(&running.handle, &[0, 1], &wish, "ops").await.unwrap_err();
    assert!(matches!(error, ActionError::Ambiguous { ambiguous: 1, letters: 2 }), "{error}");
    assert_eq!(running.payload(1).await, GERMAN, "nothing was changed");

    wish.ids = MessageIds::New;
    let done = actions.edit(&running.handle, &[0, 1], &wish, "ops").await.unwrap();
    assert_eq!((done.id.as_deref(), done.letters), (Some("e-1"), 2));
    let id = |letter: u64| {
        let handle = running.handle.clone();
        async move { handle.letter(letter).await.unwrap().unwrap().message.id().to_owned() }
    };
    // Only the message that may have been applied gets a new id.
    assert_eq!((id(0).await, id(1).await), ("o-0~e-1".to_owned(), "o-1".to_owned()));
    assert_eq!(selected(&running.handle, "id:o-0~e-1").await, [0], "the index knows its new id");
    assert_eq!(selected(&running.handle, "id:o-0").await, [0], "and the one it was accepted under");
    actions.undo_edit(&running.handle, "e-1", "ops").await.unwrap();
    assert_eq!(id(0).await, "o-0");
    wish.ids = MessageIds::Same;
    actions.edit(&running.handle, &[0], &wish, "ops").await.unwrap();
    assert_eq!(id(0).await, "o-0");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_original_is_never_dropped_for_one_more_edit() {
    let running = start(MemoryStores::new());
    let actions = Actions::open(None).unwrap();
    running.kill(&[GERMAN]).await;
    for n in 0..EDITS_MAX {
        let done = actions.edit(&running.handle, &[0], &set("/n", &n.to_string()), "ops").await.unwrap();
        assert_eq!(done.letters, 1);
    }
    let refused = actions.edit(&running.handle, &[0], &set("/n", "99"), "ops").await.unwrap();
    assert_eq!((refused.letters, refused.refused.count), (0, 1));
    assert!(refused.refused.why.unwrap().contains("undo an edit first"));
    let original = running.handle.message_before(0, "e-1").await.unwrap().unwrap();
    assert_eq!(original.payload(), Some(GERMAN.as_bytes()));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_is_not_open_is_not_edited_and_a_stale_text_is_refused() {
    let running = start(MemoryStores::new());
    let actions = Actions::open(None).unwrap();
    running.kill(&[GERMAN, FRENCH]).await;
    actions.discard(&running.handle, &[0], "ops", "gone").await.unwrap();
    let whole = |text: &'static str| MessageChange { payload: Some(text.into()), ..MessageChange::default() };
    let wish = EditWish { change: whole("{}"), was: Some(FRENCH.into()), ..EditWish::default() };
    let done = actions.edit(&running.handle, &[0, 1], &wish, "ops").await.unwrap();
    assert_eq!((done.letters, running.payload(1).await.as_str()), (1, "{}"));
    let stale = EditWish { change: whole("[]"), was: Some(FRENCH.into()), ..EditWish::default() };
    let refused = actions.edit(&running.handle, &[1], &stale, "ops").await.unwrap();
    assert_eq!((refused.letters, refused.refused.count), (0, 1));
    assert_eq!(running.payload(0).await, GERMAN);
    let states = running.handle.letters(Some(LetterState::Open), None, 9).await.unwrap();
    assert_eq!(states.len(), 1);
    running.stop().await;
}

/// A letter with a new id is still one message: it is found by either id, replayed once, and no other message gets
/// its id.
async fn a_letter_with_a_new_id_is_found_by_both_and_its_id_is_taken(stores: impl Stores + 'static) {
    let running = start_with(stores, |pipeline| pipeline.dedup(Duration::from_hours(24)));
    let actions = Actions::open(None).unwrap();
    running.kill(&[r#"{"note":"lost"}"#, r#"{"note":"lost"}"#]).await;
    // A message with the id that the second letter would get.
    let other = Message::builder("o-1~e-1").payload("\"EUR\"").build().unwrap();
    running.handle.ingest([other]).await.unwrap();
    guarded(until(&running.handle, |counts| counts.pending() == 0)).await;
    let wish = EditWish { ids: MessageIds::New, ..set("/currency", "\"EUR\"") };
    let done = actions.edit(&running.handle, &[0, 1], &wish, "ops").await.unwrap();
    assert_eq!((done.id.as_deref(), done.letters), (Some("e-1"), 1));
    assert_eq!(done.refused.letters, [1]);
    let why = done.refused.why.unwrap();
    assert!(why.contains("`o-1~e-1`, which another message has"), "{why}");

    for id in ["o-0", "o-0~e-1"] {
        let found = select::resolve(&running.handle, &[id.to_owned()]).await.unwrap();
        assert_eq!(found, [0], "{id}");
        let message = messages::message(&running.handle, id).await.unwrap().unwrap();
        assert_eq!((message.state, message.letter), (MessagePhase::Dead, Some(0)), "{id}");
    }
    let taken = Message::builder("o-0~e-1").payload("\"EUR\"").build().unwrap();
    let new = Message::builder("o-7~e-1").payload("\"EUR\"").build().unwrap();
    let accepted = running.handle.ingest([taken, new]).await.unwrap();
    assert!(matches!(accepted[..], [Accepted::Duplicate { seq: 0 }, Accepted::New { .. }]), "{accepted:?}");

    running.handle.replay(vec![0]).await.unwrap();
    guarded(until(&running.handle, |counts| counts.letters_succeeded == 1 && counts.pending() == 0)).await;
    for id in ["o-0", "o-0~e-1"] {
        let message = messages::message(&running.handle, id).await.unwrap().unwrap();
        assert_eq!(message.state, MessagePhase::Succeeded, "{id}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_with_a_new_id_is_found_by_both_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    a_letter_with_a_new_id_is_found_by_both_and_its_id_is_taken(Embedded::open(dir.path()).unwrap()).await;
}
