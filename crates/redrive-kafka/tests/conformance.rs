//! Runs the conformance suite on the Kafka engine, with a real broker.

mod support;

use std::time::Duration;

use redrive::internal::engine::conformance::{Harness, check_seeds, seeds_from_env};
use redrive::internal::engine::ingest::{Accepted, IngestAnswer, NewMessage};
use redrive::internal::engine::{Engine, StoreOptions};
use redrive_core::{Message, Time};
use redrive_kafka::KafkaEngine;
use tokio::sync::oneshot;

use support::{World, message, wait};

struct KafkaHarness {
    world: World,
    options: StoreOptions,
    engine: Option<KafkaEngine>,
}

impl KafkaHarness {
    fn new(options: StoreOptions, partitions: i32) -> Self {
        let world = World::new(partitions, &[Duration::from_millis(100), Duration::from_secs(5)]);
        let options = StoreOptions { dedup: None, ..options };
        let mut harness = Self { world, options, engine: None };
        harness.open();
        harness
    }

    fn open(&mut self) {
        // The previous engine has to be dropped first.
        self.engine = None;
        self.engine = Some(self.world.open_caught_up(self.options.clone()));
    }
}

impl Harness for KafkaHarness {
    fn engine(&mut self) -> &mut dyn Engine {
        self.engine.as_mut().expect("open")
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

    /// Kafka has no index of ids, so they are not remembered.
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

    /// A copy is listed only once it has been read.
    fn lists_everything(&self) -> bool {
        false
    }

    fn submit(&mut self, batch: Vec<NewMessage>, _now: Time) -> oneshot::Receiver<IngestAnswer> {
        let messages: Vec<Message> = batch.into_iter().map(|new| new.message).collect();
        let places = self.world.produce(&messages);
        let source = self.world.pipeline.source.clone();
        let engine = self.engine.as_mut().expect("open");
        wait("the engine reads what is there", || {
            // Leave the events that report durability for the suite to collect.
            engine.process_events();
            let read = |(partition, offset): &(i32, i64)| {
                engine.read_up_to(&source, *partition).is_some_and(|next| next > *offset as u64)
            };
            places.iter().all(read)
        });
        let numbers = places.iter().map(|(partition, offset)| (*partition as u64) << 48 | *offset as u64);
        let (sender, receiver) = oneshot::channel();
        let _ = sender.send(Ok(numbers.map(|seq| Accepted::New { seq }).collect()));
        receiver
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
