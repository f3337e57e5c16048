//! Bytes on disk stay bounded, however often one message fails or one letter is replayed.

mod support;

use std::path::Path;
use std::time::Duration;

use redrive::internal::engine::embedded::{Embedded, dir::EmbeddedStore};
use redrive::internal::engine::{
    Deliver, Delivery, KeepLetters, NewMessage, Query, ReplayAnswer, ReplayJob, ReplayTarget, Settlement,
};
use redrive_core::{Reason, Time};
use redrive_faults::plan;
use redrive_faults::settle;
use redrive_faults::verify::Scratch;
use support::{files_in, often};

/// Bound for journal and letter log. The marks of started messages have two files of 1 MiB, the index has its own
/// bound. The cleaner has its own thread and may lag on a loaded machine, so it gets time to catch up before each
/// check.
const JOURNAL_BYTES_MAX: u64 = 512 * 1024;
const INDEX_BYTES_MAX: u64 = 64 << 20;

fn open(dir: &Path) -> EmbeddedStore {
    let embedded = Embedded::open_with(dir, plan::tuning()).expect("it opens");
    embedded.store("plain", plan::options("plain")).expect("it opens")
}

/// Returns the disk usage of the files with this name suffix, without holes.
fn bytes_in(dir: &Path, end: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let size =
        |path| std::fs::metadata(path).map_or(0, |metadata: std::fs::Metadata| metadata.blocks() * 512);
    let ends = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(end);
    files_in(dir).into_iter().filter(ends).map(size).sum()
}

fn take_one(store: &mut EmbeddedStore, now: Time) -> Delivery {
    let mut hands = Vec::new();
    for _ in 0..20_000 {
        store.poll(&mut Vec::new()).expect("it goes on");
        store.take(now, 1, &mut hands).expect("it goes on");
        if let Some(delivery) = hands.pop() {
            return delivery;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    panic!("the message does not come: {:?}", store.counts());
}

fn settle_now(store: &mut EmbeddedStore, settlement: Settlement) {
    let ticket = store.settle(vec![settlement]).expect("it goes on");
    loop {
        let mut events = Vec::new();
        store.poll(&mut events).expect("it goes on");
        if events.contains(&redrive::internal::engine::Event::Durable(ticket)) {
            return;
        }
        std::thread::yield_now();
    }
}

#[derive(Default)]
struct Largest(u64, u64);

impl Largest {
    fn look(&mut self, store: &mut EmbeddedStore, dir: &Path) {
        let journal = || bytes_in(&dir.join("plain/journal"), ".seg");
        for _ in 0..5_000 {
            if journal() <= JOURNAL_BYTES_MAX {
                break;
            }
            store.poll(&mut Vec::new()).expect("it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0 = self.0.max(journal());
        self.1 = self.1.max(bytes_in(&dir.join("plain/index"), ""));
    }

    fn check(&self, what: &str) {
        let Self(journal, index) = self;
        println!("{what}: journal at most {journal} bytes, index at most {index} bytes");
        assert!(*journal <= JOURNAL_BYTES_MAX, "the journal grew to {journal} bytes");
        assert!(*index <= INDEX_BYTES_MAX, "the index grew to {index} bytes");
    }
}

fn begin(store: &EmbeddedStore) {
    let message = plan::message("the-one", None);
    let ingest = store.ingest().expect("it takes messages in");
    let answer = ingest.submit(vec![NewMessage { message, due: None }], plan::now()).blocking_recv();
    answer.expect("answered").expect("accepted");
}

#[test]
fn one_message_that_fails_again_and_again_does_not_fill_the_disk() {
    let failures = often("REDRIVE_FAILURES", 20_000);
    let scratch = Scratch::new().expect("a scratch directory");
    let mut store = open(&scratch.0);
    begin(&store);
    let mut largest = Largest::default();
    for n in 0..failures {
        let now = plan::now();
        let delivery = take_one(&mut store, now);
        assert_eq!(u64::from(delivery.meta.attempts), n);
        store.settle(vec![settle::retry(delivery, now, Duration::ZERO)]).expect("it goes on");
        if n % 250 == 0 {
            largest.look(&mut store, &scratch.0);
        }
    }
    largest.check(&format!("one message failed {failures} times"));
}

#[test]
fn a_letter_that_is_replayed_again_and_again_does_not_fill_the_disk() {
    let replays = often("REDRIVE_FAILURES", 20_000) / 5;
    let scratch = Scratch::new().expect("a scratch directory");
    let mut store = open(&scratch.0);
    begin(&store);
    let mut largest = Largest::default();
    for n in 0..replays {
        let now = plan::now();
        let delivery = take_one(&mut store, now);
        let seq = delivery.receipt.seq;
        settle_now(&mut store, settle::dead(delivery, Reason::MaxRetries, now));
        let job = ReplayJob { id: n, due: now, force: true, target: ReplayTarget::Pipeline };
        let answers = store.replay(&job, &[seq], now.into()).expect("it goes on");
        assert_eq!(answers, [ReplayAnswer::Replayed]);
        if n % 100 == 0 {
            largest.look(&mut store, &scratch.0);
        }
    }
    largest.check(&format!("one letter replayed {replays} times"));
}

/// A journal with little but ids to remember used to be rewritten over and over: the more ids there were, the more each
/// one cost.
#[test]
fn remembered_ids_are_not_carried_forward_again_and_again() {
    let scratch = Scratch::new().expect("a scratch directory");
    let embedded = Embedded::open_with(&scratch.0, plan::tuning()).expect("it opens");
    let options = redrive::internal::engine::StoreOptions {
        dedup: Some(Duration::from_hours(24)),
        ..plan::options("plain")
    };
    let mut store = embedded.store("plain", options).expect("it opens");
    let now = plan::now();
    for batch in 0..80 {
        let new = |n| NewMessage { message: plan::message(&format!("{batch}-{n}"), None), due: None };
        let ingest = store.ingest().expect("ingest");
        let answer = ingest.submit((0..100).map(new).collect(), now).blocking_recv();
        answer.expect("it answers").expect("it is accepted");
        for _ in 0..100 {
            let delivery = take_one(&mut store, now);
            settle_now(&mut store, settle::done(delivery));
        }
    }
    // Nothing arrives any more: the cleaner finishes its work and stops.
    let (mut before, mut idle_for) = (embedded.traffic().bytes(), 0);
    let written = before;
    while idle_for < 200 {
        store.poll(&mut Vec::new()).expect("it goes on");
        std::thread::sleep(Duration::from_millis(1));
        let now_written = embedded.traffic().bytes();
        idle_for = if now_written == before { idle_for + 1 } else { 0 };
        before = now_written;
        assert!(before < written * 3, "it was {written} bytes, and is {before} without a message");
    }
}
