//! One pipeline on the embedded engine, with the witness as its handler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::internal::engine::embedded::Embedded;
use redrive::{
    BreakerSettings, DeliveryOrder, GuardSettings, Message, NewMessage, Pipeline, PipelineHandle, Policy,
    Redrive, RunReport, Time,
};
use redrive_lab::order;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::options::{BenchOptions, Style};
use super::witness::{BenchWitness, wall_micros};

pub const PIPELINE: &str = "orders";
/// Messages per ingest call.
pub const BATCH: u64 = 1000;
/// Concurrent ingest calls.
pub const PRODUCERS: u64 = 32;
/// Concurrent ingest calls at a fixed rate.
const PACED_CALLS_MAX: usize = 64;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
pub struct Rig {
    pub engine: Embedded,
    pub redrive: Redrive,
    pub handle: PipelineHandle,
    pub witness: Arc<BenchWitness>,
}

/// A running pipeline.
pub struct RunningPipeline {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<RunReport, redrive::RunError>>,
}

/// A breaker that counts as usual, so that its cost is in the figures, but never opens, since some scenarios fail on
/// purpose.
fn never_opens() -> BreakerSettings {
    let mut breaker = BreakerSettings::default();
    breaker.fast.min = u32::MAX;
    breaker
}

impl Rig {
    pub fn open(options: &BenchOptions, tiers: [&str; 3], witness: BenchWitness) -> Result<Self, Error> {
        let engine = Embedded::open(&options.dir)?;
        let witness = Arc::new(witness);
        let (handling, parking) = (Arc::clone(&witness), Arc::clone(&witness));
        let pipeline = Pipeline::new(PIPELINE)
            .policy(Policy::tiers(tiers).jitter("none").classify(false).outage_gate(false))
            .breaker(never_opens())
            .guard(GuardSettings::off())
            .concurrency(options.concurrency)
            .on_dead_letter(move |letter| parking.parked(letter));
        let pipeline = match options.style {
            Style::Keyed => pipeline.ordering(DeliveryOrder::Key),
            Style::Plain | Style::Waiting => pipeline,
        };
        let pipeline = match options.style {
            Style::Waiting => pipeline.handler_fn(move |message: Message| {
                let handling = Arc::clone(&handling);
                async move {
                    tokio::task::yield_now().await;
                    handling.handle(&message)
                }
            }),
            Style::Plain | Style::Keyed => {
                pipeline.handler(move |message: &Message| std::future::ready(handling.handle(message)))
            }
        };
        let redrive = Redrive::builder().engine(engine.clone()).pipeline(pipeline).build()?;
        let handle = redrive.pipeline(PIPELINE).ok_or("no pipeline")?;
        Ok(Self { engine, redrive, handle, witness })
    }

    pub fn start(&self) -> RunningPipeline {
        let (stop, stopped) = oneshot::channel();
        let redrive = self.redrive.clone();
        RunningPipeline { stop, running: tokio::spawn(async move { redrive.run_until(stopped).await }) }
    }

    /// Ingests the messages `from..to` as fast as the calls return.
    pub async fn ingest(&self, from: u64, to: u64, due: impl Due) -> Result<(), Error> {
        let mut producers = JoinSet::new();
        for producer in 0..PRODUCERS {
            let handle = self.handle.clone();
            producers.spawn(async move {
                let firsts = (from..to).step_by(BATCH as usize).skip(producer as usize);
                for first in firsts.step_by(PRODUCERS as usize) {
                    offer(&handle, first, (first + BATCH).min(to), due).await?;
                }
                Ok::<_, redrive::internal::engine::IngestError>(())
            });
        }
        while let Some(ended) = producers.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Ingests `rate` messages per second for `span`, without waiting for the answers. Returns the number of
    /// messages.
    pub async fn ingest_paced(&self, first: u64, rate: u64, span: Duration) -> Result<u64, Error> {
        let mut answers: JoinSet<Result<(), redrive::internal::engine::IngestError>> = JoinSet::new();
        let began = Instant::now();
        let mut sent = 0;
        let mut tick = tokio::time::interval(Duration::from_millis(2));
        let all = (span.as_secs_f64() * rate as f64) as u64;
        while sent < all {
            tick.tick().await;
            let wanted = (began.elapsed().min(span).as_secs_f64() * rate as f64) as u64;
            while sent < wanted {
                let to = wanted.min(sent + BATCH);
                // A store that falls behind delays the schedule, which catches up as soon as calls return.
                if answers.len() >= PACED_CALLS_MAX
                    && let Some(answered) = answers.join_next().await
                {
                    answered??;
                }
                let (handle, from, until) = (self.handle.clone(), first + sent, first + to);
                answers.spawn(async move { offer(&handle, from, until, |_| None).await });
                sent = to;
            }
            while let Some(answered) = answers.try_join_next() {
                answered??;
            }
        }
        while let Some(answered) = answers.join_next().await {
            answered??;
        }
        Ok(sent)
    }

    /// Waits until `count` reaches `n`, and returns that time.
    pub async fn wait(&self, n: u64, count: impl Fn(&BenchWitness) -> u64) -> Instant {
        while count(&self.witness) < n {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Instant::now()
    }

    /// Waits until nothing is ready or in flight; by then all decisions are durable.
    pub async fn wait_until_settled(&self) -> Result<Instant, Error> {
        loop {
            let counts = self.handle.counts().await?;
            if counts.ready == 0 && counts.in_flight == 0 {
                return Ok(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl RunningPipeline {
    pub async fn stop(self) -> Result<RunReport, Error> {
        let _ = self.stop.send(());
        Ok(self.running.await??)
    }
}

/// The due time of message `i`; `None` means immediately.
pub trait Due: Fn(u64) -> Option<Time> + Copy + Send + 'static {}
impl<F: Fn(u64) -> Option<Time> + Copy + Send + 'static> Due for F {}

fn batch(from: u64, to: u64, due: impl Due) -> Vec<NewMessage> {
    let now = Time::from_millis(wall_micros() / 1000);
    (from..to).map(|i| NewMessage { message: order::message(i, now), due: due(i) }).collect()
}

/// Offers messages until they are accepted; retries while the store is busy.
async fn offer(
    handle: &redrive::PipelineHandle,
    from: u64,
    to: u64,
    due: impl Due,
) -> Result<(), redrive::internal::engine::IngestError> {
    // Built once: rebuilding the messages for every try would dominate the work while the store is busy.
    let messages = batch(from, to, due);
    loop {
        match handle.ingest(messages.iter().cloned()).await {
            Err(redrive::internal::engine::IngestError::Busy) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            answer => return answer.map(drop),
        }
    }
}
