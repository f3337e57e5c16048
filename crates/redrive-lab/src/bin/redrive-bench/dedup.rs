//! The cost of deduplication: ingests and delivers messages while the number of known ids grows, and times each
//! piece.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redrive::internal::engine::embedded::Embedded;
use redrive::internal::engine::{Accepted, IngestError};
use redrive::{BreakerSettings, Message, NewMessage, Pipeline, PipelineHandle, Policy, Redrive, Time};
use redrive_core::SplitMix64;
use redrive_lab::bench::figures::Figures;
use redrive_lab::bench::machine::{cpu_seconds, disk_bytes, rss_mb, rss_peak_mb};
use redrive_lab::order;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::options::BenchOptions;
use super::rig::{BATCH, Error, PIPELINE, PRODUCERS};
use super::witness::wall_micros;

/// Number of pieces that are timed separately.
const PIECES: u64 = 10;
const WINDOW: Duration = Duration::from_hours(24);

/// Ingests `n` messages with UUID-like ids, in random order, while they are delivered.
pub async fn dedup(options: &BenchOptions) -> Result<Figures, Error> {
    let engine = Embedded::open(&options.dir)?;
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    let pipeline = Pipeline::new(PIPELINE)
        .policy(Policy::tiers(["1s"]).classify(false).outage_gate(false))
        .breaker(BreakerSettings::default())
        .concurrency(options.concurrency)
        .dedup(WINDOW)
        .handler(move |_: &Message| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(()))
        });
    let redrive = Redrive::builder().engine(engine.clone()).pipeline(pipeline).build()?;
    let handle = redrive.pipeline(PIPELINE).ok_or("no pipeline")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { redrive.run_until(stopped).await });

    let mut figures = Figures::default();
    let piece = options.n / PIECES;
    let (mut first, mut last, mut slowest) = (0.0, 0.0, f64::MAX);
    let (mut cpu_first, mut cpu_most) = (0.0, 0.0);
    let cpu = cpu_seconds();
    for i in 0..PIECES {
        let (began, cpu_before) = (Instant::now(), cpu_seconds());
        ingest(&handle, i * piece, (i + 1) * piece, false).await?;
        while done.load(Ordering::Relaxed) < (i + 1) * piece {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        last = piece as f64 / began.elapsed().as_secs_f64();
        let cpu_us = (cpu_seconds() - cpu_before) * 1e6 / piece as f64;
        let ids = (i + 1) * piece;
        eprintln!(
            "  {ids} ids: {last:.0}/s, {cpu_us:.1} us of processor time each, memory {:.0} MB",
            rss_mb()
        );
        if i == 0 {
            (first, cpu_first) = (last, cpu_us);
        }
        cpu_most = f64::max(cpu_most, cpu_us);
        slowest = f64::min(slowest, last);
    }
    figures.set("cpu_us", (cpu_seconds() - cpu) * 1e6 / options.n as f64);
    // Duplicates of old and new ids alike.
    let again = piece.min(200_000);
    let began = Instant::now();
    for i in 0..PIECES {
        ingest(&handle, i * piece, i * piece + again / PIECES, true).await?;
    }
    figures.set("again_per_s", (again / PIECES * PIECES) as f64 / began.elapsed().as_secs_f64());
    figures.set("first_per_s", first);
    figures.set("last_per_s", last);
    figures.set("slowest_per_s", slowest);
    figures.set("flat", first / slowest);
    // CPU time is far less affected by other processes on the machine.
    figures.set("flat_cpu", cpu_most / cpu_first);
    figures.set("rss_mb", rss_mb());
    figures.set("rss_peak_mb", rss_peak_mb());
    let _ = stop.send(());
    running.await??;
    figures.set("index_mb", disk_bytes(&options.dir.join(PIPELINE).join("index")) as f64 / 1e6);
    drop(engine);
    let began = Instant::now();
    let engine = Embedded::open(&options.dir)?;
    let store = engine.store(
        PIPELINE,
        redrive::internal::engine::StoreOptions {
            dedup: Some(WINDOW),
            ..redrive::internal::engine::StoreOptions::default()
        },
    )?;
    figures.set("open_ms", began.elapsed().as_secs_f64() * 1e3);
    drop(store);
    Ok(figures)
}

async fn ingest(handle: &PipelineHandle, from: u64, to: u64, known: bool) -> Result<(), Error> {
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let handle = handle.clone();
        producers.spawn(async move {
            let firsts = (from..to).step_by(BATCH as usize).skip(producer as usize);
            for first in firsts.step_by(PRODUCERS as usize) {
                let now = Time::from_millis(wall_micros() / 1000);
                let messages: Vec<_> = (first..(first + BATCH).min(to)).map(|i| message(i, now)).collect();
                let accepted = loop {
                    match handle.ingest(messages.iter().cloned()).await {
                        Err(IngestError::Busy) => tokio::time::sleep(Duration::from_millis(1)).await,
                        answer => break answer?,
                    }
                };
                let duplicates = accepted.iter().filter(|a| matches!(a, Accepted::Duplicate { .. })).count();
                let expected = if known { accepted.len() } else { 0 };
                if duplicates != expected {
                    return Err(Error::from(format!("{duplicates} duplicates instead of {expected}")));
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    Ok(())
}

fn message(i: u64, now: Time) -> NewMessage {
    let (a, b) = (mix(i), mix(i ^ u64::MAX));
    let id = format!("{:08x}-{:04x}-{:04x}-{b:016x}", a >> 32, (a >> 16) & 0xffff, a & 0xffff);
    let message = Message::builder(id).payload(order::payload(i)).created(now).build();
    NewMessage { message: message.expect("within every bound"), due: None }
}

/// A bijection, so that ids are unique.
fn mix(i: u64) -> u64 {
    SplitMix64::new(i).draw()
}
