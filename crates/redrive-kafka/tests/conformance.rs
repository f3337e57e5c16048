//! The Kafka engine against the conformance suite, on a real broker.

mod support;

use std::sync::Arc;
use std::time::Duration;

use redrive::engine::conformance::{Harness, check_seeds, seeds_from_env};
use redrive::engine::ingest::{Accepted, Ingest, IngestAnswer, NewMessage};
use redrive::engine::{
    Counts, Delivery, Engine, EngineError, Event, Letter, LetterChange, LetterScan, LetterStanding,
    LetterState, ReplayAnswer, ReplayJob, Settlement, StoreOptions, Ticket,
};
use redrive_core::{Message, Time};
use redrive_kafka::KafkaEngine;
use tokio::sync::oneshot;

use support::{World, message, wait};

/// The engine, and events that were heard while the harness waited for something else.
struct Watched {
    engine: KafkaEngine,
    heard: Vec<Event>,
}

struct KafkaHarness {
    world: World,
    options: StoreOptions,
    watched: Option<Watched>,
}

impl KafkaHarness {
    fn new(options: StoreOptions, partitions: i32) -> Self {
        let world = World::new(partitions, &[Duration::from_millis(100), Duration::from_secs(5)]);
        let options = StoreOptions { dedup: None, ..options };
        let mut harness = Self { world, options, watched: None };
        harness.open();
        harness
    }

    fn open(&mut self) {
        self.watched = None;
        let engine = self.world.open_caught_up(self.options);
        self.watched = Some(Watched { engine, heard: Vec::new() });
    }
}

impl Harness for KafkaHarness {
    fn engine(&mut self) -> &mut dyn Engine {
        self.watched.as_mut().expect("open")
    }

    fn crash_and_reopen(&mut self) {
        self.open();
    }

    fn reopen_after_close(&mut self) {
        self.open();
    }

    fn window(&self) -> usize {
        0
    }

    /// Ids are not remembered: Kafka has no index of them.
    fn options(&self, asked: StoreOptions) -> StoreOptions {
        StoreOptions { dedup: None, ..asked }
    }

    /// A record of the source has neither a delay nor a deadline; its id is in a header.
    fn admissible(&self, new: NewMessage) -> NewMessage {
        let old = new.message;
        let mut made = message(old.id()).created(old.created());
        for (name, value) in old.headers() {
            made = made.header(name, value.to_vec());
        }
        if let Some(key) = old.key() {
            made = made.key(key.to_vec());
        }
        if let Some(payload) = old.payload() {
            made = made.payload(payload.to_vec());
        }
        NewMessage { message: made.build().expect("within bounds"), due: None }
    }

    fn numbers_rise(&self) -> bool {
        false
    }

    fn may_leave_twins(&self) -> bool {
        true
    }

    fn submit(&mut self, batch: Vec<NewMessage>, _now: Time) -> oneshot::Receiver<IngestAnswer> {
        let messages: Vec<Message> = batch.into_iter().map(|new| new.message).collect();
        let places = self.world.produce(&messages);
        let source = self.world.pipeline.source.clone();
        let watched = self.watched.as_mut().expect("open");
        wait("the engine reads what is there", || {
            watched.engine.poll(&mut watched.heard).expect("polling works");
            let read = |(partition, offset): &(i32, i64)| {
                watched.engine.read_up_to(&source, *partition).is_some_and(|next| next > *offset as u64)
            };
            places.iter().all(read)
        });
        let numbers = places.iter().map(|(partition, offset)| (*partition as u64) << 48 | *offset as u64);
        let (sender, receiver) = oneshot::channel();
        let _ = sender.send(Ok(numbers.map(|seq| Accepted::New { seq }).collect()));
        receiver
    }
}

impl Engine for Watched {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.engine.take(now, room, out)
    }

    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        self.engine.settle(batch)
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        out.append(&mut self.heard);
        self.engine.poll(out)
    }

    fn next_due(&self) -> Option<Time> {
        self.engine.next_due()
    }

    fn gate(&mut self, closed: bool) {
        self.engine.gate(closed);
    }

    fn counts(&self) -> Counts {
        self.engine.counts()
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        self.engine.ingest()
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.engine.on_wake(wake);
    }

    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        self.engine.letters(state, after, limit)
    }

    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        self.engine.scan_letters(state, after, limit, look_max)
    }

    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError> {
        self.engine.letter(id)
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.engine.letter_standings(job, ids)
    }

    fn replay(&mut self, job: &ReplayJob, ids: &[u64], now: Time) -> Result<Vec<ReplayAnswer>, EngineError> {
        self.engine.replay(job, ids, now)
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<bool>, EngineError> {
        self.engine.change_letters(change, ids, now)
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.engine.close()
    }
}

#[test]
fn one_partition_conforms() {
    let seeds = seeds_from_env("REDRIVE_KAFKA_SEEDS").unwrap_or(30);
    check_seeds(&|options| Box::new(KafkaHarness::new(options, 1)), 0..seeds.div_ceil(2), 60);
}

#[test]
fn several_partitions_conform() {
    let seeds = seeds_from_env("REDRIVE_KAFKA_SEEDS").unwrap_or(30);
    check_seeds(&|options| Box::new(KafkaHarness::new(options, 3)), 1_000..1_000 + seeds / 2, 60);
}
