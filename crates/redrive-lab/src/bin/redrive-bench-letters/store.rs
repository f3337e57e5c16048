//! The pipeline on either engine; every message dies on its first attempt.

use std::time::{Duration, Instant};

use redrive::internal::engine::embedded::Embedded;
use redrive::internal::letters::select::LetterIds;
use redrive::{
    BreakerSettings, GuardSettings, Message, Pipeline, PipelineHandle, Policy, Redrive, RunReport,
};
use redrive_lab::bench::machine;
use redrive_lab::kafka::Error;
use redrive_lab::kafka::processor::Processor;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::options::{LettersEngine, LettersOptions};
use super::workload;

/// Partitions of the source topic and of the letter topic.
pub const PARTITIONS: u64 = 4;
const CONCURRENCY: u32 = 1024;
/// Longest time without progress before a wait fails.
const PATIENCE: Duration = Duration::from_mins(3);

/// A running pipeline.
pub struct LetterStore {
    pub handle: PipelineHandle,
    engine: LettersEngine,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<RunReport, redrive::RunError>>,
}

impl LetterStore {
    pub fn open(options: &LettersOptions) -> Result<Self, Error> {
        let engine = *options.engines.first().ok_or("no engine")?;
        let redrive = match engine {
            LettersEngine::Embedded => embedded(options)?,
            LettersEngine::Kafka => kafka(options)?,
        };
        let handle = redrive.pipeline(&options.name).ok_or("no pipeline")?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move { redrive.run_until(stopped).await });
        Ok(Self { handle, engine, stop, running })
    }

    /// Waits until `letters` letters are open.
    pub async fn wait_for(&self, letters: u64) -> Result<(), Error> {
        let (mut moved, mut last) = (Instant::now(), 0);
        loop {
            let open = self.handle.counts().await?.letters_open;
            if open >= letters {
                return Ok(());
            }
            if open != last {
                (moved, last) = (Instant::now(), open);
            }
            if self.running.is_finished() {
                return Err(format!("the run ended with {open} of {letters} letters").into());
            }
            if moved.elapsed() > PATIENCE {
                return Err(format!("nothing moves: {open} of {letters} letters").into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The cursor of a letter in the middle of `letters`.
    pub fn middle(&self, letters: u64) -> Option<u64> {
        let (ids, name) = (LetterIds::of(&self.handle), self.handle.name());
        match self.engine {
            LettersEngine::Embedded => ids.number(&format!("{name}/{}", letters / 2)),
            LettersEngine::Kafka => {
                ids.number(&format!("{name}/{}/{}", PARTITIONS / 2, letters / PARTITIONS / 2))
            }
        }
    }

    pub async fn stop(self) -> Result<RunReport, Error> {
        let _ = self.stop.send(());
        Ok(self.running.await??)
    }
}

/// Disk usage in MB of the store, or of the Kafka engine's local files.
pub fn disk_mb(options: &LettersOptions) -> f64 {
    machine::disk_bytes(&options.dir) as f64 / 1e6
}

fn embedded(options: &LettersOptions) -> Result<Redrive, Error> {
    let pipeline = dying(Pipeline::new(&options.name), options.seed);
    Ok(Redrive::builder().engine(Embedded::open(&options.dir)?).pipeline(pipeline).build()?)
}

fn kafka(options: &LettersOptions) -> Result<Redrive, Error> {
    let processor = Processor {
        brokers: options.brokers.clone(),
        name: options.name.clone(),
        source: options.name.clone(),
        member: Some("bench".into()),
        tiers: vec!["1s".into()],
        state_dir: options.dir.clone(),
        concurrency: CONCURRENCY,
        blocking: false,
        crash_threshold: None,
        passed_on: Vec::new(),
    };
    processor.build(dying(processor.pipeline(), options.seed))
}

/// Turns off breaker, guard and outage gate, so that failures alone decide.
fn dying(pipeline: Pipeline, seed: u64) -> Pipeline {
    let mut never_opens = BreakerSettings::default();
    never_opens.fast.min = u32::MAX;
    pipeline
        .policy(Policy::tiers(["1s"]).jitter("none").outage_gate(false))
        .breaker(never_opens)
        .guard(GuardSettings::off())
        .concurrency(CONCURRENCY)
        .handler(move |message: &Message| std::future::ready(Err(workload::failure(seed, message))))
}
