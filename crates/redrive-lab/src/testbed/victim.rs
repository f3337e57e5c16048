//! A process that gets killed: an embedded engine that ingests its own messages at a fixed rate, and files that
//! survive.
//!
//! The handler appends to a file before it returns, so that the parent process knows every finished call.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redrive::internal::engine::IngestError;
use redrive::{
    Embedded, Failure, LastEnd, MemoryStores, Message, NewMessage, Pipeline, PipelineHandle, Redrive,
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::load::Load;
use super::played::Error;
use super::trace::EngineCounts;
use crate::seed;

const NAME: &str = "orders";
const TICK: Duration = Duration::from_millis(2);
/// Longer than all processes together, so that a message that is ingested again after a kill is a duplicate.
const DEDUP: Duration = Duration::from_hours(1);
/// Bytes per number in a file.
const NUMBER: u64 = 8;

/// The victim's task, passed by its parent on the command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VictimOrder {
    pub dir: PathBuf,
    pub seed: u64,
    /// Messages per second, and their total number across all processes.
    pub rate: f64,
    pub messages: u64,
    pub concurrency: u32,
    /// Latency of a call.
    pub latency_ms: u64,
    /// Whether the store is durable; otherwise a kill loses accepted messages.
    pub durable: bool,
    /// On the embedded engine, each process starts without the state of the previous one, to break the claim.
    #[serde(default)]
    pub forgets: bool,
    /// Index of this process, from 0.
    pub life: u32,
    /// The topic it reads, which the parent produces to; `None` for an embedded engine that ingests its own messages.
    #[serde(default)]
    pub kafka: Option<VictimTopic>,
}

/// The source of the messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VictimTopic {
    pub brokers: String,
    pub topic: String,
    pub partitions: u32,
}

/// The numbers in a file. An incomplete number at the end is ignored.
pub fn numbers(path: &Path) -> std::io::Result<Vec<u64>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let number = |chunk: &[u8; 8]| u64::from_le_bytes(*chunk);
    Ok(bytes.as_chunks().0.iter().map(number).collect())
}

/// How many numbers the file holds.
pub fn count(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len() / NUMBER)
}

impl VictimOrder {
    /// File with the numbers of the messages that the handlers of one process finished.
    pub fn done(&self, life: u32) -> PathBuf {
        self.dir.join(format!("done-{life}"))
    }

    /// File with the messages accepted by all processes.
    pub fn accepted(&self) -> PathBuf {
        self.of_this_life("accepted")
    }

    fn store(&self) -> PathBuf {
        self.of_this_life("store")
    }

    fn of_this_life(&self, name: &str) -> PathBuf {
        if self.forgets { self.dir.join(format!("{name}-{}", self.life)) } else { self.dir.join(name) }
    }

    /// File with the engine's counts at the end.
    pub fn counts(&self) -> PathBuf {
        self.dir.join("counts.json")
    }

    /// Created once a process on Kafka reads its partitions.
    pub fn ready(&self, life: u32) -> PathBuf {
        self.dir.join(format!("ready-{life}"))
    }

    /// Created to tell a process on Kafka to end.
    pub fn stop(&self) -> PathBuf {
        self.dir.join("stop")
    }
}

/// Runs until everything has ended, or until killed. `order` is a [`VictimOrder`] as JSON.
pub fn run(order: &str) -> Result<(), Error> {
    let order: VictimOrder = serde_json::from_str(order)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(live(order))
}

async fn live(order: VictimOrder) -> Result<(), Error> {
    match order.kafka.clone() {
        None => on_its_own(order).await,
        Some(topic) => on_kafka(order, topic).await,
    }
}

/// The pipeline of a process; its handler appends the number of each message to its file.
fn pipeline(order: &VictimOrder, name: &str) -> Result<Pipeline, Error> {
    let latency = Duration::from_millis(order.latency_ms);
    let done = Arc::new(Mutex::new(append(&order.done(order.life))?));
    Ok(Pipeline::new(name).concurrency(order.concurrency).handler(move |message: &Message| {
        let (done, id) = (Arc::clone(&done), seed::parse(message.id()));
        async move {
            tokio::time::sleep(latency).await;
            let (_, number) = id.ok_or_else(|| Failure::permanent("an id of somebody else"))?;
            let mut file = done.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(&number.to_le_bytes()).map_err(|error| Failure::transient(error.to_string()))
        }
    }))
}

/// The parent process killed the previous one.
fn last_end(order: &VictimOrder) -> LastEnd {
    if order.life > 0 { LastEnd::FromOutside } else { LastEnd::Unknown }
}

/// Reads its topic until told to stop, or killed.
#[cfg(feature = "kafka")]
async fn on_kafka(order: VictimOrder, topic: VictimTopic) -> Result<(), Error> {
    use redrive::Policy;
    use tokio::task::block_in_place;

    use super::kafka::{joined, stores_of};

    let VictimTopic { brokers, topic: name, partitions } = topic;
    let policy = Policy::tiers(["1s"]).build()?;
    let stores = stores_of(&brokers, &name, Some("victim"), &order.dir.join("state"), &policy);
    let pipeline = pipeline(&order, &name)?.policy(policy);
    let builder = Redrive::builder().last_end(last_end(&order)).engine(stores).pipeline(pipeline);
    let redrive = block_in_place(|| builder.build())?;
    let handle = redrive.pipeline(&name).ok_or("a pipeline that was built is missing")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { redrive.run_until(stopped).await });
    joined(&handle, u64::from(partitions)).await?;
    File::create(order.ready(order.life))?;
    while !order.stop().exists() {
        tokio::time::sleep(TICK).await;
    }
    let _ = stop.send(());
    running.await??;
    Ok(())
}

#[cfg(not(feature = "kafka"))]
fn on_kafka(_: VictimOrder, _: VictimTopic) -> std::future::Ready<Result<(), Error>> {
    std::future::ready(Err("this build has no Kafka engine".into()))
}

/// Runs an embedded engine and ingests its own messages.
async fn on_its_own(order: VictimOrder) -> Result<(), Error> {
    let pipeline = pipeline(&order, NAME)?.dedup(DEDUP);
    let builder = Redrive::builder().last_end(last_end(&order)).pipeline(pipeline);
    let redrive = if order.durable {
        builder.engine(Embedded::open(order.store())?).build()?
    } else {
        builder.engine(MemoryStores::new()).build()?
    };
    let handle = redrive.pipeline(NAME).ok_or("a pipeline that was built is missing")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { redrive.run_until(stopped).await });
    bring(&order, &handle).await?;
    let mut counts = handle.counts().await?;
    while counts.pending() > 0 {
        tokio::time::sleep(TICK).await;
        counts = handle.counts().await?;
    }
    let letters =
        counts.letters_open + counts.letters_replaying + counts.letters_succeeded + counts.letters_discarded;
    let counts = EngineCounts { accepted: counts.accepted, pending: counts.pending(), letters };
    std::fs::write(order.counts(), serde_json::to_vec(&counts)?)?;
    let _ = stop.send(());
    running.await??;
    Ok(())
}

/// Continues where the previous process was killed. Messages that it had accepted but not recorded are duplicates by
/// id.
async fn bring(order: &VictimOrder, handle: &PipelineHandle) -> Result<(), Error> {
    let load =
        Load::steady(order.seed, order.rate, Duration::from_secs_f64(order.messages as f64 / order.rate));
    let path = order.accepted();
    let (first, mut accepted) = (count(&path), append(&path)?);
    let (began, mut next) = (Instant::now(), first);
    while next < order.messages {
        tokio::time::sleep(TICK).await;
        let due = (first + load.arrived_by(began.elapsed())).min(order.messages);
        let batch: Vec<NewMessage> = (next..due)
            .map(|number| NewMessage { message: load.message(number, "{}", handle.now()), due: None })
            .collect();
        match handle.ingest(batch).await {
            Err(IngestError::Busy) => continue,
            answer => answer?,
        };
        let numbers: Vec<u8> = (next..due).flat_map(u64::to_le_bytes).collect();
        accepted.write_all(&numbers)?;
        next = due;
    }
    Ok(())
}

fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}
