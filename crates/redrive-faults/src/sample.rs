//! A small store with a bit of everything: letters in the letter log, several segments, index tables, remembered ids,
//! messages that wait for their due time or their key. It ends cleanly, and what must be found in it is known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use redrive::internal::engine::embedded::{Embedded, StoreReport, dir::EmbeddedStore};
use redrive::internal::engine::{
    Deliver, Delivery, EngineError, Event, KeepLetters, LetterChange, LetterState, MessagePhase, NewMessage,
    Query, Settlement, StoreNotice, StoreOptions, Ticket,
};
use redrive::letters::Filter;
use redrive_core::{Reason, Time};

use crate::plan;
use crate::settle;

/// The time of the sample according to its messages, the same on every day.
pub const NOW: Time = Time::from_millis(1_790_000_000_000);
/// How long ids are remembered.
pub const DEDUP: Duration = Duration::from_hours(24);
const LONG: Duration = Duration::from_hours(10);
const HANG_GUARD: Duration = Duration::from_mins(1);

/// The expected state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleFate {
    Done,
    /// Ready, delayed, or waiting for its key.
    Pending,
    Open,
    Discarded,
}

/// The fate of every acknowledged id of a pipeline.
pub type Fates = BTreeMap<String, SampleFate>;

pub fn options(pipeline: &str) -> StoreOptions {
    StoreOptions { dedup: Some(DEDUP), ..plan::options(pipeline) }
}

/// Creates the store of one pipeline with about this many messages.
pub fn make(dir: &Path, pipeline: &str, messages: u64) -> Result<Fates, EngineError> {
    let mut maker = Maker::open(dir, pipeline, Fates::new())?;
    let begun = Instant::now();
    while maker.made < messages || !is_cleaned(&dir.join(pipeline).join("journal")) {
        assert!(begun.elapsed() < HANG_GUARD, "the cleaner does not get round");
        maker.offer(7 + maker.made % 5)?;
        maker.deliver()?;
        maker.rest()?;
    }
    maker.discard()?;
    maker.offer(12)?;
    maker.store.close()?;
    Ok(maker.fates)
}

/// Opens an existing store, adds this many messages, and ends cleanly.
pub fn go_on(dir: &Path, pipeline: &str, fates: Fates, messages: u64) -> Result<Fates, EngineError> {
    let mut maker = Maker::open(dir, pipeline, fates)?;
    let until = maker.made + messages;
    while maker.made < until {
        maker.offer(7 + maker.made % 5)?;
        maker.deliver()?;
        maker.rest()?;
    }
    maker.discard()?;
    maker.store.close()?;
    Ok(maker.fates)
}

/// Whether the journal was cleaned often enough that the letter log has a closed segment.
fn is_cleaned(journal: &Path) -> bool {
    let names = std::fs::read_dir(journal).into_iter().flatten().flatten();
    let names: Vec<_> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let begins = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
    begins("j-0000000000000000") == 0 && begins("j-") > 2 && begins("l-") > 1
}

struct Maker {
    store: EmbeddedStore,
    keyed: bool,
    made: u64,
    fates: Fates,
    last: Ticket,
}

impl Maker {
    fn open(dir: &Path, pipeline: &str, fates: Fates) -> Result<Self, EngineError> {
        let embedded = Embedded::open_with(dir, plan::tuning())?;
        let store = embedded.store(pipeline, options(pipeline))?;
        let made = fates.len() as u64;
        Ok(Self { store, keyed: pipeline == "keyed", made, fates, last: Ticket(0) })
    }

    fn offer(&mut self, count: u64) -> Result<(), EngineError> {
        let ids: Vec<u64> = (self.made..self.made + count).collect();
        self.made += count;
        let id = |n: &u64| format!("m-{n:06}");
        let new = |n: &u64| {
            let key = self.keyed.then(|| format!("k{}", n % 97));
            NewMessage { message: plan::message(&id(n), key.as_deref()), due: None }
        };
        let ingest = self.store.ingest().expect("the embedded engine takes messages in");
        let answer = ingest.submit(ids.iter().map(new).collect(), NOW).blocking_recv();
        let accepted = answer.map_err(|error| EngineError::Storage(error.to_string()))?;
        accepted.map_err(|error| EngineError::Storage(error.to_string()))?;
        self.fates.extend(ids.iter().map(|n| (id(n), SampleFate::Pending)));
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), EngineError> {
        loop {
            let mut taken = Vec::new();
            self.store.poll(&mut Vec::new())?;
            self.store.take(NOW, 64, &mut taken)?;
            if taken.is_empty() {
                return Ok(());
            }
            let batch = taken.into_iter().map(|delivery| self.verdict(delivery)).collect();
            self.last = self.store.settle(batch)?;
            self.wait()?;
        }
    }

    fn verdict(&mut self, delivery: Delivery) -> Settlement {
        let id = delivery.message.id().to_owned();
        let number: u64 = id.trim_start_matches("m-").parse().unwrap_or_default();
        match number % 10 {
            0 | 1 => {
                self.fates.insert(id, SampleFate::Open);
                settle::dead(delivery, Reason::MaxRetries, NOW)
            }
            2 if number % 100 == 2 => settle::retry(delivery, NOW, LONG),
            _ => {
                self.fates.insert(id, SampleFate::Done);
                settle::done(delivery)
            }
        }
    }

    fn discard(&mut self) -> Result<(), EngineError> {
        let letters = self.store.letters(Some(LetterState::Open), None, 40)?;
        let some: Vec<_> = letters.into_iter().filter(|letter| letter.id.is_multiple_of(4)).collect();
        let ids: Vec<u64> = some.iter().map(|letter| letter.id).collect();
        self.store.change_letters(&LetterChange::Discard, &ids, NOW.into())?;
        self.fates
            .extend(some.into_iter().map(|letter| (letter.message.id().to_owned(), SampleFate::Discarded)));
        Ok(())
    }

    fn wait(&mut self) -> Result<(), EngineError> {
        let begun = Instant::now();
        let mut events = Vec::new();
        while !events.iter().filter_map(|event: &Event| event.durable()).any(|ticket| ticket >= self.last) {
            assert!(begun.elapsed() < HANG_GUARD, "nothing becomes durable");
            self.store.poll(&mut events)?;
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Gives checkpoints and the cleaner time to run.
    fn rest(&mut self) -> Result<(), EngineError> {
        for _ in 0..20 {
            self.store.poll(&mut Vec::new())?;
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(())
    }
}

/// Writes the fates as lines of text, for a store that is kept.
pub fn write(fates: &Fates) -> String {
    let line = |(id, fate): (&String, &SampleFate)| format!("{id} {fate:?}\n");
    fates.iter().map(line).collect()
}

pub fn read(text: &str) -> Fates {
    let fate = |word: &str| match word {
        "Done" => SampleFate::Done,
        "Pending" => SampleFate::Pending,
        "Open" => SampleFate::Open,
        _ => SampleFate::Discarded,
    };
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(id, word)| (id.to_owned(), fate(word)))
        .collect()
}

/// What was found in a reopened store.
#[derive(Debug, Default)]
pub struct FoundStore {
    pub letters: BTreeMap<String, LetterState>,
    /// How many of the letters the filter `status:503` finds.
    pub unavailable: usize,
    /// Dead letters and deliveries whose content is damaged, by number.
    pub corrupt: BTreeSet<u64>,
    /// Messages that were pending and have been delivered now.
    pub delivered: BTreeSet<String>,
    /// The store's answer for each id, before anything is delivered.
    pub phases: BTreeMap<String, Option<MessagePhase>>,
    pub report: StoreReport,
    pub notices: Vec<StoreNotice>,
}

/// Opens the store of a pipeline, queries every id, and delivers everything that is pending.
pub fn look(dir: &Path, pipeline: &str, fates: &Fates) -> Result<FoundStore, EngineError> {
    let embedded = Embedded::open_with(dir, plan::tuning())?;
    let mut store = embedded.store(pipeline, options(pipeline))?;
    let mut found =
        FoundStore { report: embedded.report(pipeline).unwrap_or_default(), ..FoundStore::default() };
    let unavailable = Filter::parse("status:503").expect("a filter");
    for letter in patiently(|| store.letters(None, None, usize::MAX))? {
        if letter.reason == Reason::Corrupt {
            found.corrupt.insert(letter.id);
        }
        found.unavailable += usize::from(unavailable.matches(&letter, NOW));
        found.letters.insert(letter.message.id().to_owned(), letter.state);
    }
    let now = Time::from_millis(NOW.as_millis() + 1000);
    for id in fates.keys() {
        let state = patiently(|| store.message(id, now))?;
        found.phases.insert(id.clone(), state.map(|state| state.state));
    }
    let later = Time::from_millis(NOW.as_millis() + 100 * LONG.as_millis() as u64);
    let begun = Instant::now();
    loop {
        let mut taken = Vec::new();
        store.poll(&mut Vec::new())?;
        store.take(later, 64, &mut taken)?;
        if taken.is_empty() && store.counts().pending() == 0 {
            store.notices(&mut found.notices);
            return Ok(found);
        }
        assert!(begun.elapsed() < HANG_GUARD, "it does not come to its end: {:?}", store.counts());
        let mut batch = Vec::new();
        for delivery in taken {
            if delivery.doomed.is_some() {
                found.corrupt.insert(delivery.receipt.seq);
                batch.push(settle::dead(delivery, Reason::Corrupt, later));
            } else {
                let id = delivery.message.id().to_owned();
                assert_eq!(delivery.message.payload(), Some(&plan::payload(&id)[..]), "{id} is not whole");
                found.delivered.insert(id);
                batch.push(settle::done(delivery));
            }
        }
        store.settle(batch)?;
    }
}

/// Repeats a query for as long as the index is being rebuilt.
pub fn patiently<T>(mut ask: impl FnMut() -> Result<T, EngineError>) -> Result<T, EngineError> {
    let begun = Instant::now();
    loop {
        match ask() {
            Err(EngineError::Unavailable(_)) if begun.elapsed() < HANG_GUARD => {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer => return answer,
        }
    }
}

impl FoundStore {
    /// Returns the acknowledged ids that are not where they must be.
    pub fn missing(&self, fates: &Fates) -> Vec<String> {
        let is_there = |id: &String, fate: &SampleFate| match fate {
            SampleFate::Done => true,
            SampleFate::Pending => self.delivered.contains(id),
            SampleFate::Open => self.letters.get(id) == Some(&LetterState::Open),
            SampleFate::Discarded => self.letters.get(id) == Some(&LetterState::Discarded),
        };
        fates.iter().filter(|(id, fate)| !is_there(id, fate)).map(|(id, _)| id.clone()).collect()
    }
}
