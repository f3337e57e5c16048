//! One pipeline on the Kafka engine, with the witness as its handler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::{Message, PipelineHandle, Redrive, RunReport};
use redrive_lab::kafka::Error;
use redrive_lab::kafka::processor::Processor;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::options::{KafkaBenchOptions, Mode};
use super::witness::KafkaBenchWitness;

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_mins(3);

pub struct Rig {
    pub handle: PipelineHandle,
    pub witness: Arc<KafkaBenchWitness>,
    redrive: Redrive,
}

/// The processor that every measurement uses.
pub fn processor(options: &KafkaBenchOptions) -> Processor {
    Processor {
        brokers: options.brokers.clone(),
        name: options.name.clone(),
        source: options.source.clone(),
        member: Some("bench".into()),
        tiers: vec!["1s".into(), "2s".into(), "4s".into()],
        state_dir: options.dir.clone(),
        concurrency: options.concurrency,
        blocking: options.mode == Mode::Blocking,
        crash_threshold: None,
        passed_on: options.passed_on.clone(),
    }
}

/// A running pipeline.
pub struct RunningPipeline {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<RunReport, redrive::RunError>>,
}

impl Rig {
    pub fn open(options: &KafkaBenchOptions, witness: KafkaBenchWitness) -> Result<Self, Error> {
        let processor = processor(options);
        let witness = Arc::new(witness);
        let (handling, parking) = (Arc::clone(&witness), Arc::clone(&witness));
        let pipeline = processor
            .pipeline()
            .on_dead_letter(move |letter| parking.parked(letter))
            .handler(move |message: &Message| std::future::ready(handling.handle(message)));
        let redrive = processor.build(pipeline)?;
        let handle = redrive.pipeline(&options.name).ok_or("no pipeline")?;
        Ok(Self { handle, witness, redrive })
    }

    pub fn start(&self) -> RunningPipeline {
        let (stop, stopped) = oneshot::channel();
        let redrive = self.redrive.clone();
        RunningPipeline { stop, running: tokio::spawn(async move { redrive.run_until(stopped).await }) }
    }

    /// Waits until `count` reaches `n`, and returns that time.
    pub async fn wait(
        &self,
        run: &RunningPipeline,
        n: u64,
        count: impl Fn(&KafkaBenchWitness) -> u64,
    ) -> Result<Instant, Error> {
        let (mut moved, mut last) = (Instant::now(), 0);
        loop {
            let now = count(&self.witness);
            if now >= n {
                return Ok(Instant::now());
            }
            if now > last {
                (moved, last) = (Instant::now(), now);
            }
            if run.running.is_finished() {
                return Err(format!("the run ended at {now} of {n}").into());
            }
            if moved.elapsed() > PATIENCE {
                return Err(format!("nothing moves: {now} of {n}").into());
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
