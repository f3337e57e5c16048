//! The downstream of a run on the real clock: a handler that answers as the load says and records what it saw.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use redrive::{Failure, GuardSettings, HealthChange, LetterState, Message, Pipeline, PipelineHandle};
use redrive_core::breaker::BreakerChange;
use tokio::task::AbortHandle;

use super::call_log::CallLog;
use super::engine_metrics::EngineSample;
use super::load::{HandlerAnswer, Load};
use super::stage::Stage;
use super::subject::Subject;
use super::trace::{EngineCounts, RunEnd};
use crate::fate::Fate;
use crate::{mark, seed};

pub type Error = Box<dyn std::error::Error + Send + Sync>;

const LOOK: Duration = Duration::from_millis(20);
/// Interval at which people close letters.
const TRIAGE: Duration = Duration::from_millis(100);
/// Interval at which the engine's metrics are read.
const METRICS: Duration = Duration::from_millis(250);
/// Far longer than a run needs to come to rest.
const REST_MAX: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Played {
    pub(super) load: Load,
    pub(super) log: Arc<dyn CallLog>,
    began: OnceLock<Instant>,
    /// The number of offered messages; set once all are offered.
    offered: AtomicU64,
    breaker_opened: AtomicU32,
    breaker_first_ms: OnceLock<u32>,
    triaged_ms: Mutex<Vec<u32>>,
    metrics: Mutex<Vec<EngineSample>>,
}

/// Aborts a task on drop.
#[derive(Debug)]
pub(super) struct BackgroundTask(AbortHandle);

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Played {
    pub(super) fn new(load: &Load, log: Arc<dyn CallLog>) -> Arc<Self> {
        Arc::new(Self {
            load: load.clone(),
            log,
            began: OnceLock::new(),
            offered: AtomicU64::new(0),
            breaker_opened: AtomicU32::new(0),
            breaker_first_ms: OnceLock::new(),
            triaged_ms: Mutex::default(),
            metrics: Mutex::default(),
        })
    }

    /// Time since the first call of this function.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.get_or_init(Instant::now).elapsed()
    }

    /// The order as JSON of 512 bytes, without a mark of its fate.
    pub(super) fn payload(&self, number: u64) -> String {
        mark::order(&self.load.id(number), self.load.key(number), number, 0, Fate::Success)
    }

    async fn handle(self: Arc<Self>, number: u64) -> Result<(), Failure> {
        let begins = self.elapsed();
        let call = self.log.called(number, begins);
        let (takes, hangs) = self.load.takes(begins);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        let at = self.elapsed();
        let answer = if hangs { HandlerAnswer::Transient } else { self.load.answer(number, call, at) };
        if number < self.load.phantom_letters && answer != HandlerAnswer::Success {
            self.log.died(number, at);
            return Ok(());
        }
        let answer = answer.to_result();
        match &answer {
            Ok(()) => self.log.succeeded(number, at),
            Err(_) => self.log.failed(at),
        }
        answer
    }

    pub(super) fn pipeline(self: &Arc<Self>, name: &str, concurrency: u32, subject: &Subject) -> Pipeline {
        let (called, parked, health) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        let number = |message: &Message| seed::parse(message.id()).map_or(0, |(_, number)| number);
        Pipeline::new(name)
            .policy(subject.policy.clone())
            .breaker(subject.breaker.clone())
            .guard(GuardSettings::off())
            .ordering(subject.ordering)
            .concurrency(concurrency)
            .on_dead_letter(move |letter| parked.log.died(number(&letter.message), parked.elapsed()))
            .on_health(move |changed| {
                let opened =
                    matches!(changed.change, HealthChange::Breaker { change: BreakerChange::Opened(_), .. });
                health.breaker_opened.fetch_add(u32::from(opened), Ordering::Relaxed);
                if opened {
                    health.breaker_first_ms.get_or_init(|| health.elapsed().as_millis() as u32);
                }
            })
            .handler(move |message: &Message| Arc::clone(&called).handle(number(message)))
    }

    /// Simulates people who close the oldest letters at a fixed rate, if the load has triage, until the returned task
    /// is dropped. A load with triage has one lane.
    pub(super) fn triage(self: &Arc<Self>, handles: &[PipelineHandle]) -> Option<BackgroundTask> {
        let (rate, handle) = (self.load.triage_per_second?, handles.first()?.clone());
        let played = Arc::clone(self);
        let task = tokio::spawn(async move {
            // Idle time does not accumulate.
            let mut may_close = 0.0_f64;
            let mut tick = tokio::time::interval(TRIAGE);
            loop {
                tick.tick().await;
                may_close += rate * TRIAGE.as_secs_f64();
                let limit = may_close as usize;
                if limit == 0 {
                    continue;
                }
                // Retried at the next tick.
                let Ok(open) = handle.letters(Some(LetterState::Open), None, limit).await else { continue };
                let closed = open.len();
                if closed > 0
                    && handle.discard(open.iter().map(|letter| letter.id).collect::<Vec<_>>()).await.is_err()
                {
                    continue;
                }
                may_close = if closed < limit { 0.0 } else { may_close - closed as f64 };
                let at = played.elapsed().as_millis() as u32;
                let mut triaged = played.triaged_ms.lock().unwrap_or_else(PoisonError::into_inner);
                triaged.extend(std::iter::repeat_n(at, closed));
            }
        });
        Some(BackgroundTask(task.abort_handle()))
    }

    /// Reads the engine's metrics until the returned task is dropped.
    pub(super) fn watch_metrics(self: &Arc<Self>, handles: &[PipelineHandle]) -> BackgroundTask {
        let (played, handles) = (Arc::clone(self), handles.to_vec());
        let task = tokio::spawn(async move {
            let mut tick = tokio::time::interval(METRICS);
            loop {
                tick.tick().await;
                let sample = EngineSample::read(played.elapsed(), &handles);
                played.metrics.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
            }
        });
        BackgroundTask(task.abort_handle())
    }

    pub(super) fn offered(&self, messages: u64) {
        self.offered.store(messages, Ordering::Relaxed);
    }

    /// Waits until every message has ended or the time is over. Returns `false` if interrupted.
    pub(super) async fn follow(&self, stage: Stage<'_>) -> bool {
        while self.log.ended() < self.offered.load(Ordering::Relaxed) && self.elapsed() < self.load.ends() {
            stage.at(self.elapsed(), self.load.ends());
            if stage.is_interrupted() {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// Pauses all pipelines and waits until running calls are settled and `count` agrees, so that both sides can be
    /// counted at the same moment.
    pub(super) async fn come_to_rest(
        &self,
        handles: &[PipelineHandle],
        count: impl AsyncFn(&[PipelineHandle]) -> Result<Option<EngineCounts>, Error>,
    ) -> Result<EngineCounts, Error> {
        for handle in handles {
            handle.pause().await?;
        }
        let began = Instant::now();
        loop {
            let mut in_flight = 0;
            for handle in handles {
                in_flight += handle.counts().await?.in_flight;
            }
            if in_flight == 0
                && let Some(counts) = count(handles).await?
            {
                return Ok(counts);
            }
            if began.elapsed() > REST_MAX {
                return Err(format!("{in_flight} messages are in flight a minute after a pause").into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) fn end(&self, engine: EngineCounts, letters: Vec<u64>, ran_for: Duration) -> RunEnd {
        let breaker_opened = self.breaker_opened.load(Ordering::Relaxed);
        let triaged_ms = self.triaged_ms.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let breaker_first_ms = self.breaker_first_ms.get().copied();
        RunEnd {
            engine,
            ran_for,
            breaker_opened,
            breaker_first_ms,
            triaged_ms,
            metrics,
            broker_records: None,
            tier_records: Vec::new(),
            letters,
        }
    }
}
