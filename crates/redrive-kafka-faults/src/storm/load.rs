//! Writes records to both source topics at a fixed rate, until it is ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use redrive_lab::kafka::Error;
use redrive_lab::order;

use super::flow::{Flow, KEYS};
use super::seen::CallLog;

const TICK: Duration = Duration::from_millis(10);
/// Bound on records that were produced and never attempted, so that a slow machine is not flooded.
const BACKLOG_MAX: u64 = 20_000;
/// Longer than any answer of the cluster takes, even with brokers down.
const ACKNOWLEDGED_WITHIN_MS: &str = "600000";
/// A flow changes its codec after this many records.
const CODEC_TURN: u64 = 500;

/// Counts records that the cluster did not accept.
#[derive(Clone, Debug, Default)]
struct Failed(Arc<AtomicU64>);

impl ClientContext for Failed {}

impl ProducerContext for Failed {
    /// How many records of the partition are in flight.
    type DeliveryOpaque = Arc<AtomicU64>;

    fn delivery(&self, result: &DeliveryResult<'_>, on_their_way: Arc<AtomicU64>) {
        on_their_way.fetch_sub(1, Ordering::Relaxed);
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A load that runs in a thread of its own.
#[derive(Debug)]
pub struct StormLoad {
    shared: Arc<SharedLoad>,
    /// `None` once it was ended.
    thread: Option<JoinHandle<Result<(), Error>>>,
}

#[derive(Debug)]
struct SharedLoad {
    ended: AtomicBool,
    written: [AtomicU64; 2],
    /// Source partitions of each flow that records go to.
    partitions: [AtomicI32; 2],
    /// Partitions that records are to go to as soon as the producers know them.
    wanted: [AtomicI32; 2],
}

impl StormLoad {
    /// Writes `per_second` records, half of them for each flow.
    pub fn start(
        brokers: &str,
        topics: [String; 2],
        partitions: i32,
        per_second: u64,
        seen: Arc<CallLog>,
    ) -> Result<Self, Error> {
        let counts = || [AtomicI32::new(partitions), AtomicI32::new(partitions)];
        let shared = SharedLoad {
            ended: AtomicBool::new(false),
            written: [AtomicU64::new(0), AtomicU64::new(0)],
            partitions: counts(),
            wanted: counts(),
        };
        let shared = Arc::new(shared);
        let failed = Failed::default();
        let producers = [producer(brokers, "lz4", &failed)?, producer(brokers, "zstd", &failed)?];
        let queues = BTreeMap::new();
        let mut writer =
            RecordWriter { shared: Arc::clone(&shared), producers, queues, failed, topics, seen };
        let thread = std::thread::spawn(move || writer.run(per_second));
        Ok(Self { shared, thread: Some(thread) })
    }

    pub fn written(&self, flow: Flow) -> u64 {
        self.shared.written[flow.index()].load(Ordering::Relaxed)
    }

    /// Returns the number of partitions that records go to.
    pub fn partitions(&self, flow: Flow) -> i32 {
        self.shared.partitions[flow.index()].load(Ordering::Relaxed)
    }

    /// Spreads records over this many partitions once the producers know them.
    pub fn spread(&self, flow: Flow, partitions: i32) {
        self.shared.wanted[flow.index()].store(partitions, Ordering::Relaxed);
    }

    /// Whether it ended without being told to.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends the load. Returns how many records of each flow were written, once all are acknowledged.
    pub fn end(&mut self) -> Result<[u64; 2], Error> {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| "the load panicked")??;
        }
        Ok(Flow::ALL.map(|flow| self.shared.written[flow.index()].load(Ordering::Relaxed)))
    }
}

/// Records of one partition that were not handed to the producer yet. An idempotent producer polls without pause while
/// records wait behind a request of their partition, so they wait here.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<u64>,
    on_their_way: Arc<AtomicU64>,
}

struct RecordWriter {
    shared: Arc<SharedLoad>,
    producers: [BaseProducer<Failed>; 2],
    /// By producer, flow and partition.
    queues: BTreeMap<(usize, usize, i32), Queue>,
    failed: Failed,
    topics: [String; 2],
    seen: Arc<CallLog>,
}

impl RecordWriter {
    fn run(&mut self, per_second: u64) -> Result<(), Error> {
        let (mut last, mut owed) = (Instant::now(), 0.0);
        while !self.shared.ended.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            owed += last.elapsed().as_secs_f64() * per_second as f64 / 2.0;
            last = Instant::now();
            let whole = owed as u64;
            owed -= whole as f64;
            for flow in Flow::ALL {
                self.follow_growth(flow)?;
                let written = self.shared.written[flow.index()].load(Ordering::Relaxed);
                let room = (self.seen.reached(flow) + BACKLOG_MAX).saturating_sub(written);
                for number in written..written + whole.min(room) {
                    self.queue(flow, number);
                }
                self.shared.written[flow.index()].fetch_add(whole.min(room), Ordering::Relaxed);
            }
            self.send()?;
            self.hear()?;
        }
        while self.queues.values().any(|queue| !queue.waiting.is_empty())
            || self.producers.iter().any(|producer| producer.in_flight_count() > 0)
        {
            std::thread::sleep(TICK);
            self.send()?;
            self.hear()?;
        }
        Ok(())
    }

    /// Starts to use new partitions once all producers know them; until then a producer refuses records for them.
    fn follow_growth(&self, flow: Flow) -> Result<(), Error> {
        let wanted = self.shared.wanted[flow.index()].load(Ordering::Relaxed);
        if wanted == self.shared.partitions[flow.index()].load(Ordering::Relaxed) {
            return Ok(());
        }
        for producer in &self.producers {
            let metadata = producer
                .client()
                .fetch_metadata(Some(&self.topics[flow.index()]), Duration::from_secs(30))?;
            let known = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
            if known < wanted as usize {
                return Ok(());
            }
        }
        self.shared.partitions[flow.index()].store(wanted, Ordering::Relaxed);
        Ok(())
    }

    fn queue(&mut self, flow: Flow, number: u64) {
        // Two producers would break the order of a key, so the ordered flow has one codec.
        let codec = if flow.keeps_order() { 1 } else { (number / CODEC_TURN % 2) as usize };
        let partitions = self.shared.partitions[flow.index()].load(Ordering::Relaxed);
        let partition = (number % KEYS % partitions as u64) as i32;
        self.queues.entry((codec, flow.index(), partition)).or_default().waiting.push_back(number);
    }

    /// Hands waiting records to the producers, for partitions with nothing in flight.
    fn send(&mut self) -> Result<(), Error> {
        for ((codec, flow, partition), queue) in &mut self.queues {
            if queue.on_their_way.load(Ordering::Relaxed) > 0 {
                continue;
            }
            let topic = &self.topics[*flow];
            while let Some(number) = queue.waiting.front() {
                let (payload, key) = (order::payload(*number), format!("k-{}", number % KEYS));
                let record = BaseRecord::with_opaque_to(topic, Arc::clone(&queue.on_their_way));
                match self.producers[*codec].send(record.key(&key).payload(&payload).partition(*partition)) {
                    Ok(()) => {
                        queue.on_their_way.fetch_add(1, Ordering::Relaxed);
                        queue.waiting.pop_front();
                    }
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => break,
                    Err((error, _)) => return Err(format!("{topic}/{partition}: {error}").into()),
                }
            }
        }
        Ok(())
    }

    fn hear(&self) -> Result<(), Error> {
        for producer in &self.producers {
            for _ in 0..16 {
                producer.poll(Duration::ZERO);
            }
        }
        match self.failed.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            failed => Err(format!("{failed} records were not acknowledged").into()),
        }
    }
}

fn producer(brokers: &str, codec: &str, failed: &Failed) -> Result<BaseProducer<Failed>, Error> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("enable.idempotence", "true").set("linger.ms", "20");
    config.set("compression.type", codec).set("message.timeout.ms", ACKNOWLEDGED_WITHIN_MS);
    // A frozen broker must not hold up the load for longer than the cluster needs to replace it, or a silence of the
    // load would look like one of the processors.
    config.set("socket.timeout.ms", "3000").set("topic.metadata.refresh.interval.ms", "1000");
    Ok(BaseProducer::from_config_and_context(&config, failed.clone())?)
}
