//! Imported letters: created once, numbered like messages, delivered only by a replay, whatever a power failure
//! loses.

mod support;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use redrive::actions::{ActionKind, Actions};
use redrive::internal::engine::embedded::Tuning;
use redrive::internal::engine::embedded::disk::sim::{SimDisk, SimOp};
use redrive::internal::engine::embedded::index::runs::SortedRuns;
use redrive::internal::engine::embedded::store::Store;
use redrive::internal::engine::embedded::store::location::{OpenIndex, StoreLocation, seed};
use redrive::internal::engine::embedded::store::open::open_by_hand;
use redrive::internal::engine::letter::ReplayTarget;
use redrive::internal::engine::seam::{Deliver, DeliveryOrder, Engine, KeepLetters, Query, StoreOptions};
use redrive::internal::engine::{
    Attempt, ForeignLetter, History, ImportAnswer, LetterState, Memory, NewMessage, ReplayAnswer, ReplayJob,
};
use redrive::{
    Class, FailureKind, MemoryStores, Message, Meta, Pipeline, PipelineHandle, Reason, Redrive, Time,
};
use support::{guarded, message, quick, until};

const NOW: Time = Time::from_millis(1_800_000_000_000);

fn letter(n: u32) -> ForeignLetter {
    let attempt = Attempt {
        number: 4,
        at: Time::from_millis(1_700_000_000_000),
        took_ms: 0,
        class: Class::Permanent,
        kind: FailureKind::Other,
        code: None,
        counted: true,
        ambiguous: false,
        error: format!(
            "java.lang.IllegalStateException: order {n}\n\tat com.example.Orders.load(Orders.java:{n})"
        ),
    };
    let message = Message::builder(format!("orders/0/{n}")).key("c-1").payload(format!("{{\"n\":{n}}}"));
    ForeignLetter {
        message: message.created(attempt.at).build().unwrap(),
        origin: None,
        meta: Meta { created: attempt.at, attempts: 4, first_failed: Some(attempt.at), ..Meta::default() },
        history: History::default().with(&attempt),
    }
}

fn letters(range: std::ops::Range<u32>) -> Vec<ForeignLetter> {
    range.map(letter).collect()
}

fn numbers(answers: &[ImportAnswer]) -> Vec<Option<u64>> {
    let number = |answer: &ImportAnswer| match answer {
        ImportAnswer::Imported { number, .. } | ImportAnswer::Already { number } => *number,
        ImportAnswer::Refused { why } => panic!("{why}"),
    };
    answers.iter().map(number).collect()
}

fn imported(answers: &[ImportAnswer]) -> usize {
    answers.iter().filter(|answer| matches!(answer, ImportAnswer::Imported { .. })).count()
}

type SimStore = Store<SimDisk, SortedRuns<SimDisk>>;

fn place(options: StoreOptions) -> StoreLocation<SimDisk> {
    let tuning = Tuning {
        segment_bytes: 2048,
        reserve_bytes: 0,
        near_max: 4,
        checkpoint_bytes: 1500,
        checkpoint_changes: 5,
        clean_above_bytes: 4096,
        resolved_retention: Duration::from_hours(24 * 30),
        scrub: None,
        accept_missing: false,
    };
    StoreLocation { disk: SimDisk::new(), store_id: *b"imported letters", options, tuning, owner: 1 }
}

fn open(place: &StoreLocation<SimDisk>, index: &SimDisk) -> SimStore {
    let (seed, base) = (seed(&place.store_id), place.tuning.checkpoint_changes);
    let index = index.clone();
    let open_index: OpenIndex<_> = Arc::new(move |anew: bool| {
        let open = if anew { SortedRuns::anew } else { SortedRuns::open };
        open(index.clone(), seed, base).map(Arc::new)
    });
    open_by_hand(place, &open_index).expect("it opens").0
}

fn ingest(engine: &mut dyn Engine, id: &str) -> u64 {
    let ingest = engine.ingest().expect("it takes messages");
    let new = NewMessage { message: message(id), due: None };
    let mut answer = ingest.submit(vec![new], NOW);
    engine.poll(&mut Vec::new()).unwrap();
    match answer.try_recv().unwrap().unwrap()[0] {
        redrive::Accepted::New { seq } | redrive::Accepted::Duplicate { seq } => seq,
    }
}

fn taken(engine: &mut dyn Engine) -> Vec<String> {
    let mut out = Vec::new();
    engine.take(NOW, 100, &mut out).unwrap();
    out.iter().map(|delivery| delivery.message.id().to_owned()).collect()
}

fn check_once(engine: &mut dyn Engine) {
    let dry = engine.import(letters(0..3), true, NOW.into()).unwrap();
    assert_eq!((imported(&dry), numbers(&dry)), (3, vec![None; 3]));
    assert_eq!(engine.counts().letters_open, 0);
    let first = engine.import(letters(0..3), false, NOW.into()).unwrap();
    assert_eq!(imported(&first), 3);
    // Some twice in one batch, some existing, some new.
    let again = engine.import([letters(1..5), letters(3..4)].concat(), false, NOW.into()).unwrap();
    assert_eq!(imported(&again), 2);
    assert_eq!(numbers(&again)[..2], numbers(&first)[1..]);
    assert_eq!(engine.counts().letters_open, 5);
    let ImportAnswer::Imported { group, .. } = &first[0] else { panic!("{first:?}") };
    assert_eq!(group.title, "java.lang.IllegalStateException at com.example.Orders.load");

    let number = numbers(&first)[0].unwrap();
    let shown = engine.letter(number).unwrap().unwrap();
    assert_eq!((shown.state, shown.reason, shown.dead_at), (LetterState::Open, Reason::Imported, NOW));
    assert_eq!((shown.meta.attempts, shown.history.attempts().len()), (4, 1));
    assert_eq!(shown.group, *group);
    assert_eq!(engine.groups(NOW).unwrap()[0].open, 5);
    assert_eq!(taken(engine), Vec::<String>::new());
    // A different payload makes a different message.
    let mut edited = letter(0);
    edited.message = Message::builder("orders/0/0").key("c-1").payload("{}").build().unwrap();
    assert_eq!(imported(&engine.import(vec![edited], false, NOW.into()).unwrap()), 1);

    assert!(ingest(engine, "next") > number);
    let job = ReplayJob { id: 1, due: NOW, force: false, target: ReplayTarget::Pipeline };
    assert_eq!(engine.replay(&job, &[number], NOW.into()).unwrap(), [ReplayAnswer::Replayed]);
    let mut out = taken(engine);
    out.sort();
    assert_eq!(out, ["next", "orders/0/0"], "a letter blocks nobody, and is delivered once it is replayed");
}

#[test]
fn a_letter_is_imported_once_and_delivered_by_a_replay() {
    for ordering in [DeliveryOrder::None, DeliveryOrder::Key] {
        for dedup in [None, Some(Duration::from_hours(1))] {
            let options = StoreOptions { ordering, dedup, ..StoreOptions::default() };
            check_once(&mut Memory::new(options.clone()));
            check_once(&mut open(&place(options), &SimDisk::new()));
        }
    }
}

/// The sync fails, followed by a power failure: no imported message is delivered, and importing all again creates each
/// letter once.
#[test]
fn an_import_that_was_not_synced_leaves_no_message_and_is_made_again() {
    for cut in 0..60 {
        let (mut place, mut index) = (place(StoreOptions::default()), SimDisk::new());
        let mut store = open(&place, &index);
        assert_eq!(ingest(&mut store, "before"), 0);
        place.disk.fail_next(SimOp::Sync, 1 + cut % 3, ErrorKind::Other);
        // Few enough to stay in the segment: starting another one would fail before anything is written.
        let is_answered = store.import(letters(0..3), false, NOW.into()).is_ok();
        drop(store);
        place.disk = place.disk.power_cut(cut);
        index = if cut % 3 == 0 { SimDisk::new() } else { index.power_cut(cut) };
        let mut store = open(&place, &index);
        let there = store.counts().letters_open;
        assert!(there <= 3 && (there == 3 || !is_answered), "cut {cut}: {there}");
        assert_eq!(taken(&mut store), ["before"], "cut {cut}: nothing that died elsewhere is delivered");
        let again = store.import(letters(0..3), false, NOW.into()).unwrap();
        assert_eq!((imported(&again) as u64, store.counts().letters_open), (3 - there, 3), "cut {cut}");
        let next = ingest(&mut store, "next");
        assert!(numbers(&again).into_iter().flatten().all(|number| number < next), "cut {cut}");
    }
}

/// Everything acknowledged survives a power failure, with its own numbers.
#[test]
fn a_power_cut_takes_no_letter_that_was_answered() {
    for cut in 0..40 {
        let (mut place, mut index) = (place(StoreOptions::default()), SimDisk::new());
        let mut store = open(&place, &index);
        assert_eq!(ingest(&mut store, "before"), 0);
        store.import(letters(0..20), false, NOW.into()).unwrap();
        ingest(&mut store, "after");
        store.poll(&mut Vec::new()).unwrap();
        drop(store);
        place.disk = place.disk.power_cut(cut);
        index = if cut % 3 == 0 { SimDisk::new() } else { index.power_cut(cut) };
        let mut store = open(&place, &index);
        assert_eq!(store.counts().letters_open, 20, "cut {cut}: they were durable");
        assert_eq!(taken(&mut store), ["before", "after"], "cut {cut}");
        let again = store.import(letters(0..25), false, NOW.into()).unwrap();
        assert_eq!(imported(&again), 5, "cut {cut}");
        assert_eq!(store.counts().letters_open, 25, "cut {cut}");
        let mut all: Vec<u64> = numbers(&again).into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 25, "cut {cut}: every letter has a number of its own");
    }
}

/// An index rebuilt from the journal and a running one have the same letters, even after the cleaner has moved
/// them.
#[test]
fn imported_letters_outlive_the_segment_they_were_written_to() {
    let (place, index) = (place(StoreOptions::default()), SimDisk::new());
    let mut store = open(&place, &index);
    store.import(letters(0..10), false, NOW.into()).unwrap();
    for round in 0..60 {
        ingest(&mut store, &format!("filler-{round}-{}", "x".repeat(400)));
        let mut out = Vec::new();
        store.take(NOW, 10, &mut out).unwrap();
        let done = out.into_iter().map(|delivery| redrive::internal::engine::Settlement {
            delivery,
            verdict: redrive::internal::engine::Verdict::Done,
            attempt: None,
        });
        store.settle(done.collect()).unwrap();
        store.poll(&mut Vec::new()).unwrap();
    }
    assert_eq!(imported(&store.import(letters(0..10), false, NOW.into()).unwrap()), 0);
    store.close().unwrap();
    drop(store);
    let mut anew = open(&place, &SimDisk::new());
    assert_eq!(anew.counts().letters_open, 10);
    assert_eq!(imported(&anew.import(letters(0..10), false, NOW.into()).unwrap()), 0);
    assert_eq!(taken(&mut anew), Vec::<String>::new());
}

fn pipeline() -> PipelineHandle {
    let handler = |_: Message| async { Ok::<(), redrive::Failure>(()) };
    let pipeline = Pipeline::new("orders").policy(quick(0)).handler_fn(handler);
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    tokio::spawn(async move { redrive.run_until(std::future::pending::<()>()).await });
    handle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_is_in_the_action_log_with_who_did_it_and_a_repetition_is_not() {
    let handle = pipeline();
    let actions = Actions::open(None).unwrap();
    let dry = actions.import(&handle, letters(0..250), true, "ops", "topic orders-dlt").await.unwrap();
    assert_eq!(imported(&dry.answers), 250);
    assert!(actions.list(None, 10).await.unwrap().is_empty(), "a dry run does nothing");
    let done = actions.import(&handle, letters(0..250), false, "ops", "topic orders-dlt").await.unwrap();
    assert_eq!(imported(&done.answers), 250);
    let again = actions.import(&handle, letters(0..250), false, "boss", "topic orders-dlt").await.unwrap();
    assert_eq!(imported(&again.answers), 0);
    let told = actions.list(None, 10).await.unwrap();
    let [line] = &told[..] else { panic!("{told:?}") };
    assert_eq!((line.action, line.actor.as_str(), line.letters), (ActionKind::Import, "ops", 250));
    assert_eq!(line.note.as_deref(), Some("topic orders-dlt"));

    let ids: Vec<u64> = numbers(&done.answers).into_iter().flatten().collect();
    handle.replay(ids).await.unwrap();
    guarded(until(&handle, |counts| counts.letters_succeeded == 250)).await;
}
