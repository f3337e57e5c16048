//! Time to find the letter of one message among many: by id, which is indexed, and by error text, which is not.

use std::time::{Duration, Instant};

use redrive::internal::engine::embedded::Embedded;
use redrive::letters::{Filter, Selection};
use redrive::{BreakerSettings, Failure, GuardSettings, Message, Pipeline, PipelineHandle, Policy, Redrive};
use redrive_lab::bench::figures::Figures;
use redrive_lab::bench::machine::rss_mb;
use redrive_lab::order;
use tokio::sync::oneshot;

use super::options::BenchOptions;
use super::rig::{BATCH, Error, PIPELINE};

/// Searches by id; the median is reported.
const SEARCHES: u64 = 101;

/// Creates `n` letters and searches for some of them.
pub async fn letters(options: &BenchOptions) -> Result<Figures, Error> {
    let engine = Embedded::open(&options.dir)?;
    let mut never_opens = BreakerSettings::default();
    never_opens.fast.min = u32::MAX;
    let pipeline = Pipeline::new(PIPELINE)
        .policy(Policy::tiers(["1s"]).outage_gate(false))
        .breaker(never_opens)
        .guard(GuardSettings::off())
        .concurrency(options.concurrency)
        .handler(|message: &Message| {
            let failed = Failure::permanent(format!("no such customer, order {}", message.id()));
            std::future::ready(Err(failed))
        });
    let redrive = Redrive::builder().engine(engine.clone()).pipeline(pipeline).build()?;
    let handle = redrive.pipeline(PIPELINE).ok_or("no pipeline")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { redrive.run_until(stopped).await });
    for first in (0..options.n).step_by(BATCH as usize) {
        let messages = (first..(first + BATCH).min(options.n)).map(message);
        handle.ingest(messages).await?;
    }
    while handle.counts().await?.letters_open < options.n {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let mut figures = Figures::default();
    let mut times = Vec::new();
    let mut looked_at = 0;
    for search in 0..SEARCHES {
        let id = id(search * (options.n / SEARCHES));
        let (found, scanned, took) = find(&handle, &format!("id:{id}")).await?;
        if found != 1 {
            return Err(format!("{found} letters of message {id}").into());
        }
        looked_at = looked_at.max(scanned);
        times.push(took);
    }
    times.sort_unstable();
    figures.set("by_id_ms", times[times.len() / 2].as_secs_f64() * 1e3);
    figures.set("by_id_most_ms", times[times.len() - 1].as_secs_f64() * 1e3);
    figures.set("by_id_looked_at", looked_at as f64);
    let (found, _, took) = find(&handle, &format!("error:\"order {}\"", id(options.n / 2))).await?;
    if found != 1 {
        return Err(format!("{found} letters with that error").into());
    }
    figures.set("by_error_ms", took.as_secs_f64() * 1e3);
    figures.set("rss_mb", rss_mb());
    let _ = stop.send(());
    running.await??;
    Ok(figures)
}

/// Follows all pages of a search, as `redrive inspect --filter` does.
async fn find(handle: &PipelineHandle, filter: &str) -> Result<(usize, u64, Duration), Error> {
    let selection = Selection { filter: Some(Filter::parse(filter)?), ..Selection::default() };
    let began = Instant::now();
    let (mut after, mut found, mut scanned) = (None, 0, 0);
    loop {
        let page = selection.page_without_payloads(handle, after, 100).await?;
        found += page.letters.len();
        scanned += page.scanned;
        after = page.next;
        if after.is_none() {
            return Ok((found, scanned, began.elapsed()));
        }
    }
}

fn id(i: u64) -> String {
    format!("o-{i:09}")
}

fn message(i: u64) -> Message {
    Message::builder(id(i)).payload(order::payload(i)).build().expect("within every bound")
}
