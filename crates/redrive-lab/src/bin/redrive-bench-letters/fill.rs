//! Ingests messages in batches until all of them are dead letters.

use std::time::{Duration, Instant};

use redrive::internal::engine::IngestError;
use redrive::{Message, NewMessage, PipelineHandle};
use redrive_lab::bench::{Figures, machine};
use redrive_lab::kafka::Error;
use redrive_lab::kafka::load::Loader;
use tokio::task::JoinSet;

use super::options::{LettersEngine, LettersOptions};
use super::store::{LetterStore, PARTITIONS, disk_mb};
use super::workload;

/// Messages per ingest call.
const BATCH: u64 = 1000;
/// Concurrent ingest calls.
const PRODUCERS: u64 = 16;

pub async fn run(options: &LettersOptions) -> Result<Figures, Error> {
    let n = *options.sizes.first().ok_or("no size")?;
    let began = Instant::now();
    if options.engines.first() == Some(&LettersEngine::Kafka) {
        let options = options.clone();
        tokio::task::spawn_blocking(move || load(&options, n)).await??;
    }
    let loaded = began.elapsed();
    let store = LetterStore::open(options)?;
    if options.engines.first() == Some(&LettersEngine::Embedded) {
        ingest(&store.handle, n).await?;
    }
    store.wait_for(n).await?;
    let mut figures = Figures::default();
    figures.set("fill_s", began.elapsed().as_secs_f64());
    figures.set("load_s", loaded.as_secs_f64());
    figures.set("rss_mb", machine::rss_mb());
    figures.set("rss_peak_mb", machine::rss_peak_mb());
    store.stop().await?;
    figures.set("disk_mb", disk_mb(options));
    Ok(figures)
}

fn load(options: &LettersOptions, n: u64) -> Result<(), Error> {
    let loader = Loader::new(&options.brokers, &options.name, PARTITIONS, &[("compression.type", "lz4")])?;
    loader.write_with(0..n, |i| {
        let customer = i % workload::CUSTOMERS;
        ((i % PARTITIONS) as i32, format!("c-{customer}"), workload::payload(i))
    })
}

async fn ingest(handle: &PipelineHandle, n: u64) -> Result<(), Error> {
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let handle = handle.clone();
        producers.spawn(async move {
            let firsts = (0..n).step_by(BATCH as usize).skip(producer as usize);
            for first in firsts.step_by(PRODUCERS as usize) {
                offer(&handle, first, (first + BATCH).min(n)).await?;
            }
            Ok::<_, IngestError>(())
        });
    }
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    Ok(())
}

/// Offers messages until they are accepted; retries while the store is busy.
async fn offer(handle: &PipelineHandle, from: u64, to: u64) -> Result<(), IngestError> {
    let now = handle.now();
    let message = |i| {
        let message = Message::builder(workload::id(i)).key(format!("c-{}", i % workload::CUSTOMERS));
        let message = message.payload(workload::payload(i)).created(now).build();
        NewMessage { message: message.expect("within every bound"), due: None }
    };
    let messages: Vec<NewMessage> = (from..to).map(message).collect();
    loop {
        match handle.ingest(messages.iter().cloned()).await {
            Err(IngestError::Busy) => tokio::time::sleep(Duration::from_millis(1)).await,
            answer => return answer.map(drop),
        }
    }
}
