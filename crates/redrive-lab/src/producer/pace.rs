//! A whole run: offers every batch on time and counts.

use std::fs::File;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive::Time;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::batch::OrderBatch;
use super::offer::{End, RunState};
use super::options::{ProducerError, ProducerOptions};
use super::progress::{Progress, add, get};
use super::report::ProducerReport;
use super::schedule::Schedule;
use super::server::Metrics;
use crate::fate::Fate;
use crate::http::{Door, Listen};

/// A producer that is ready to run.
#[derive(Debug)]
pub struct Producer {
    options: ProducerOptions,
    schedule: Schedule,
    state: Arc<RunState>,
    listen: Option<Listen>,
}

impl Producer {
    /// Checks the options, opens the ids file and binds the address of the metrics.
    pub async fn bind(options: ProducerOptions) -> Result<Self, ProducerError> {
        let faults = options.faults();
        if !faults.is_empty() {
            return Err(ProducerError::Options(faults));
        }
        let ids = options.ids_file.as_ref().map(File::create).transpose();
        let ids = ids.map_err(|error| ids_error(&options, error))?;
        let listen = match options.listen {
            Some(addr) => {
                Some(Listen::bind(addr).await.map_err(|error| ProducerError::Listen { addr, error })?)
            }
            None => None,
        };
        let state = Arc::new(RunState::new(options.target.clone(), ids));
        Ok(Self { schedule: options.schedule(), options, state, listen })
    }

    /// The address of the metrics, if they are served.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.listen.as_ref().map(Listen::addr)
    }

    /// Sends until the schedule is over and everything is acknowledged, or until `shutdown`.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<ProducerReport, ProducerError> {
        let started = Instant::now();
        let mut beside = JoinSet::new();
        if let Some(listen) = self.listen.take() {
            let metrics =
                Arc::new(Metrics { state: Arc::clone(&self.state), schedule: self.schedule, started });
            let (door, at_door) = tokio::sync::watch::channel(Door::Open);
            beside.spawn(async move {
                let _served = listen.serve(metrics, at_door, std::future::pending()).await;
                drop(door);
            });
        }
        beside.spawn(tell_progress(self.options.clone(), Arc::clone(&self.state), self.schedule, started));
        let run = self.pace(started, shutdown).await;
        beside.shutdown().await;
        let report = self.report(started, &run);
        match self.state.take_end() {
            Some(End::Rejected(why)) => {
                return Err(ProducerError::Rejected { why, report: Box::new(report) });
            }
            Some(End::IdsFile(error)) => return Err(ids_error(&self.options, error)),
            None => {}
        }
        self.state.flush_ids().map_err(|error| ids_error(&self.options, error))?;
        Ok(report)
    }

    async fn pace(&self, started: Instant, shutdown: impl Future<Output = ()>) -> Paced {
        tokio::pin!(shutdown);
        let room = Arc::new(Semaphore::new(self.options.in_flight_max));
        let mut offers = JoinSet::new();
        let mut offered = 0;
        for request in 0.. {
            let Some(indices) = self.schedule.indices(request) else { break };
            let due = started + self.schedule.request_due(&indices);
            let permit = tokio::select! {
                biased;
                () = &mut shutdown => return self.stop(offers, offered).await,
                () = self.state.ended.notified() => return self.stop(offers, offered).await,
                permit = self.in_time(due, &room) => permit,
            };
            // Removes finished offers, so that the set holds at most as many as may be in flight.
            while offers.try_join_next().is_some() {}
            offered = indices.end;
            self.state.counters.lateness().record(due.elapsed());
            let numbers = self.options.first + indices.start..self.options.first + indices.end;
            offers.spawn(self.send(numbers, permit));
        }
        let all = async { while offers.join_next().await.is_some() {} };
        tokio::select! {
            biased;
            () = &mut shutdown => {}
            () = self.state.ended.notified() => {}
            () = all => return Paced { offered, stopped: false },
        }
        self.stop(offers, offered).await
    }

    /// Waits for the due time and for a free slot; the schedule does not shift meanwhile.
    async fn in_time(&self, due: Instant, room: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        if due > Instant::now() {
            tokio::time::sleep_until(due).await;
        }
        if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
            return Some(permit);
        }
        add(&self.state.counters.held, 1);
        // The semaphore is never closed.
        Arc::clone(room).acquire_owned().await.ok()
    }

    fn send(
        &self,
        numbers: std::ops::Range<u64>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let batch = OrderBatch::new(self.options.seed, self.options.rates(), numbers, now());
        let counters = &self.state.counters;
        add(&counters.sent, batch.len());
        add(&counters.poison, batch.count(|fate| fate == Fate::Poison));
        add(&counters.transient, batch.count(|fate| matches!(fate, Fate::Transient { .. })));
        add(&counters.in_flight, 1);
        let state = Arc::clone(&self.state);
        async move {
            state.offer(Arc::new(batch)).await;
            state.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
            drop(permit);
        }
    }

    /// Gives requests in flight the grace period, then aborts them.
    async fn stop(&self, mut offers: JoinSet<()>, offered: u64) -> Paced {
        let all = async { while offers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.options.grace, all).await;
        offers.shutdown().await;
        Paced { offered, stopped: true }
    }

    fn report(&self, started: Instant, run: &Paced) -> ProducerReport {
        let counters = &self.state.counters;
        let total = self.state.progress(self.schedule, started).since(&Progress::default());
        ProducerReport {
            seed: self.options.seed,
            numbers: self.options.first..self.options.first + run.offered,
            unanswered: self.state.unanswered(),
            poison: get(&counters.poison),
            transient: get(&counters.transient),
            total,
            late_p50: counters.lateness().quantile(0.5),
            stopped: run.stopped,
        }
    }
}

/// How far the schedule was followed.
#[derive(Clone, Copy, Debug)]
struct Paced {
    offered: u64,
    stopped: bool,
}

async fn tell_progress(options: ProducerOptions, state: Arc<RunState>, schedule: Schedule, started: Instant) {
    let Some(on_progress) = options.on_progress else { return };
    let mut ticks = tokio::time::interval_at(started + options.progress_every, options.progress_every);
    let mut before = Progress::default();
    loop {
        ticks.tick().await;
        before = state.progress(schedule, started).since(&before);
        (on_progress.0)(&before);
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Time::from_millis(since.as_millis() as u64)
}

fn ids_error(options: &ProducerOptions, error: std::io::Error) -> ProducerError {
    let path = options.ids_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    ProducerError::IdsFile { path, error }
}

/// Checks, binds and runs until the schedule is over or `shutdown`: the implementation of `redrive producer`.
pub async fn run(
    options: ProducerOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<ProducerReport, ProducerError> {
    Producer::bind(options).await?.run(shutdown).await
}
