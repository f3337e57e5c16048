//! The ceiling: a loop around a bare client that consumes, produces the same copies with as many headers, and
//! commits.
//!
//! It uses the same fates and reads every copy back, but does not wait for due times, keeps no state and guarantees
//! only that copies are acknowledged before the offsets behind them are committed.

use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use redrive_lab::bench::{Figures, machine};
use redrive_lab::fate::Fate;
use redrive_lab::kafka::{Error, orders};
use redrive_lab::order;

use super::options::{KafkaBenchFates, KafkaBenchOptions};

const ATTEMPTS_MAX: u8 = 4;
const COMMIT_EVERY: Duration = Duration::from_millis(100);
const WAIT: Duration = Duration::from_millis(10);
/// Empty polls in a row before the loop gives up.
const WAITS_MAX: u32 = 6_000;

/// The headers of a copy besides the attempt count: as many as the engine's, and about as long.
const HEADERS: [(&str, &str); 11] = [
    ("x-orig-topic", "bench-orders"),
    ("x-orig-partition", "3"),
    ("x-orig-offset", "1234567"),
    ("x-message-id", "bench-orders/3/1234567"),
    ("x-created", "1794800000000"),
    ("x-first-seen", "1794800000000"),
    ("x-last-delay-ms", "1000"),
    ("x-due", "1794800001000"),
    ("x-last-error", "503 service unavailable"),
    ("x-error-class", "transient"),
    (
        "x-attempt-errors",
        r#"[{"n":1,"at":1794800000000,"took_ms":0,"class":"transient","counted":true,"ambiguous":false,"error":"503 service unavailable"}]"#,
    ),
];

#[derive(Debug)]
struct Quiet;

impl ClientContext for Quiet {}

impl ProducerContext for Quiet {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        // A ceiling that loses records would be meaningless.
        assert!(result.is_ok(), "a copy was not acknowledged");
    }
}

struct Loop<'a> {
    options: &'a KafkaBenchOptions,
    tier: String,
    dead: String,
    producer: BaseProducer<Quiet>,
    first: u64,
    ended: u64,
    copies: u64,
}

pub fn run(options: &KafkaBenchOptions) -> Result<Figures, Error> {
    let (tier, dead) = (format!("{}.retry", options.name), format!("{}.DLQ", options.name));
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &options.brokers).set("group.id", &options.name);
    config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "true");
    config.set("auto.offset.reset", "earliest").set("fetch.queue.backoff.ms", "10");
    config.set("partition.assignment.strategy", "range").set("isolation.level", "read_committed");
    let consumer: BaseConsumer = config.create()?;
    let mut topics = vec![options.source.as_str()];
    if options.fates == KafkaBenchFates::Workload {
        topics.push(&tier);
    }
    consumer.subscribe(&topics)?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &options.brokers).set("enable.idempotence", "true");
    config.set("linger.ms", "5").set("compression.type", "lz4");
    let producer = BaseProducer::from_config_and_context(&config, Quiet)?;
    let mut state = Loop { options, tier: tier.clone(), dead, producer, first: 0, ended: 0, copies: 0 };

    let started = Instant::now();
    let (mut began, mut cpu, mut first_at) = (None, 0.0, None);
    let (mut committed, mut waits) = (Instant::now(), 0);
    while state.ended < options.n {
        match consumer.poll(WAIT) {
            Some(record) => {
                waits = 0;
                let now = *began.get_or_insert_with(|| {
                    cpu = machine::cpu_seconds();
                    Instant::now()
                });
                state.take(&record?)?;
                if state.first == options.n && first_at.is_none() {
                    first_at = Some(now.elapsed());
                }
            }
            None if waits > WAITS_MAX => return Err("nothing comes any more".into()),
            None => waits += 1,
        }
        if (state.first + state.copies).is_multiple_of(64) && committed.elapsed() > COMMIT_EVERY {
            state.drain();
            consumer.commit_consumer_state(CommitMode::Async)?;
            committed = Instant::now();
        }
    }
    state.drain();
    consumer.commit_consumer_state(CommitMode::Sync)?;
    let began = began.unwrap_or(started);
    let mut figures = Figures::default();
    figures.set("n", options.n as f64);
    figures.set("start_s", (began - started).as_secs_f64());
    figures.set("first_s", first_at.unwrap_or_default().as_secs_f64());
    figures.set("settled_s", began.elapsed().as_secs_f64());
    figures.set("copies", state.copies as f64);
    figures.set("cpu_s", machine::cpu_seconds() - cpu);
    figures.set("rss_peak_mb", machine::rss_peak_mb());
    Ok(figures)
}

impl Loop<'_> {
    fn take(&mut self, record: &BorrowedMessage<'_>) -> Result<(), Error> {
        let number = record.payload().and_then(orders::number).ok_or("no order of the workload")?;
        let attempt = 1 + record.headers().map_or(0, attempts);
        self.first += u64::from(attempt == 1);
        let fails = match self.options.fates {
            KafkaBenchFates::Succeed => false,
            KafkaBenchFates::Workload => Fate::of(&order::id(number)).fails(attempt),
        };
        if !fails || attempt == ATTEMPTS_MAX {
            self.ended += 1;
        }
        if fails { self.copy(record, attempt) } else { Ok(()) }
    }

    fn copy(&mut self, record: &BorrowedMessage<'_>, attempt: u8) -> Result<(), Error> {
        let topic = if attempt == ATTEMPTS_MAX { &self.dead } else { &self.tier };
        let attempts = attempt.to_string();
        let mut headers = OwnedHeaders::new_with_capacity(HEADERS.len() + 1)
            .insert(Header { key: "x-attempts", value: Some(&attempts) });
        for (key, value) in HEADERS {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        let mut copy = BaseRecord::to(topic).partition(record.partition()).headers(headers);
        copy.key = record.key();
        copy.payload = record.payload();
        self.copies += 1;
        loop {
            match self.producer.send(copy) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                    copy = again;
                    self.producer.poll(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
        if self.copies.is_multiple_of(256) {
            self.producer.poll(Duration::ZERO);
        }
        Ok(())
    }

    /// Does not use `flush`, which polls in steps of 100 ms even if the acknowledgements arrive sooner.
    fn drain(&self) {
        while self.producer.in_flight_count() > 0 {
            self.producer.poll(Duration::from_millis(1));
        }
    }
}

fn attempts(headers: &impl Headers) -> u8 {
    let first = headers.try_get(0).filter(|header| header.key == "x-attempts");
    first.and_then(|header| std::str::from_utf8(header.value?).ok()?.parse().ok()).unwrap_or(0)
}
