//! A process that is killed: an embedded engine, messages that it brings itself at a rate, and files that survive it.
//!
//! What a handler has done is appended to a file before it returns, so that whoever killed the process knows it.

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
/// Longer than all lives: what is brought again after a kill is no second message.
const DEDUP: Duration = Duration::from_hours(1);
/// Bytes of a number in a file.
const NUMBER: u64 = 8;

/// What a victim does, as its parent passes it on the command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VictimOrder {
    pub dir: PathBuf,
    pub seed: u64,
    /// Messages per second, and how many there are in all lives together.
    pub rate: f64,
    pub messages: u64,
    pub concurrency: u32,
    /// How long a call takes.
    pub latency_ms: u64,
    /// Whether the store survives; without it, a kill loses what was accepted.
    pub durable: bool,
    /// Which life this is, from 0.
    pub life: u32,
}

/// Numbers that a file holds. One that was cut off in the middle does not count.
pub fn numbers(path: &Path) -> std::io::Result<Vec<u64>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let number = |chunk: &[u8; 8]| u64::from_le_bytes(*chunk);
    Ok(bytes.as_chunks().0.iter().map(number).collect())
}

/// How many numbers it holds.
pub fn count(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len() / NUMBER)
}

impl VictimOrder {
    /// What the handlers of a life have done.
    pub fn done(&self, life: u32) -> PathBuf {
        self.dir.join(format!("done-{life}"))
    }

    /// Messages that were accepted, in all lives.
    pub fn accepted(&self) -> PathBuf {
        self.dir.join("accepted")
    }

    /// What the engine counts when all is done.
    pub fn counts(&self) -> PathBuf {
        self.dir.join("counts.json")
    }
}

/// Runs until everything has ended, or until it is killed. `order` is a [`VictimOrder`] as JSON.
pub fn run(order: &str) -> Result<(), Error> {
    let order: VictimOrder = serde_json::from_str(order)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(live(order))
}

async fn live(order: VictimOrder) -> Result<(), Error> {
    let latency = Duration::from_millis(order.latency_ms);
    let done = Arc::new(Mutex::new(append(&order.done(order.life))?));
    let pipeline =
        Pipeline::new(NAME).concurrency(order.concurrency).dedup(DEDUP).handler(move |message: &Message| {
            let (done, id) = (Arc::clone(&done), seed::parse(message.id()));
            async move {
                tokio::time::sleep(latency).await;
                let (_, number) = id.ok_or_else(|| Failure::permanent("an id of somebody else"))?;
                let mut file = done.lock().unwrap_or_else(PoisonError::into_inner);
                file.write_all(&number.to_le_bytes()).map_err(|error| Failure::transient(error.to_string()))
            }
        });
    // Whoever started this process has killed the one before.
    let last_end = if order.life > 0 { LastEnd::FromOutside } else { LastEnd::Unknown };
    let builder = Redrive::builder().last_end(last_end).pipeline(pipeline);
    let redrive = if order.durable {
        builder.engine(Embedded::open(order.dir.join("store"))?).build()?
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

/// Goes on where the life before was killed. What it had accepted without writing it down is a duplicate by its id.
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
