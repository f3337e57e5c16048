//! A downstream that is down for a while under load, on any engine: the cost in calls, letters and peak load.
//!
//! Orders arrive at a fixed rate. The downstream responds, then refuses everything, then responds again. It does its
//! own counting; only the breaker's rounds and probes come from the pipeline.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redrive::{
    BreakerSettings, Call, Delivery, Failure, HealthChange, Pipeline, PipelineHandle, Policy, Redrive, Sink,
};
use redrive_core::breaker::{BreakerChange, BreakerState};
use tokio::sync::oneshot;

type Error = Box<dyn std::error::Error + Send + Sync>;

const STEP: Duration = Duration::from_millis(20);
/// Maximum time to drain the backlog, as a multiple of the time in which it accumulated.
const PATIENCE: u32 = 20;

/// The parameters of the outage.
#[derive(Clone, Debug)]
pub struct OutagePlan {
    /// Orders per second.
    pub rate: u64,
    pub before: Duration,
    pub outage: Duration,
    /// Maximum number of concurrent calls.
    pub limit: u32,
    /// Latency of a successful call.
    pub takes: Duration,
    pub breaker: BreakerSettings,
}

impl OutagePlan {
    /// The default breaker, and a call latency that leaves a third of the capacity for the backlog at 2,000 orders
    /// per second.
    pub fn lasting(outage: Duration, rate: u64) -> Self {
        let (limit, takes) = (64, Duration::from_millis(20));
        Self {
            rate,
            before: Duration::from_secs(10),
            outage,
            limit,
            takes,
            breaker: BreakerSettings::default(),
        }
    }
}

/// The downstream and its counters.
#[derive(Debug, Default)]
pub struct OutageDownstream {
    takes_us: AtomicU64,
    is_down: AtomicBool,
    refused: AtomicU64,
    refused_at_opening: AtomicU64,
    served: AtomicU64,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

#[derive(Debug)]
struct OutageDoor(Arc<OutageDownstream>);

impl Sink for OutageDoor {
    fn deliver(&self, _call: Call) -> Delivery<'_> {
        Box::pin(async move {
            let seen = &*self.0;
            let running = seen.running.fetch_add(1, SeqCst) + 1;
            seen.most_running.fetch_max(running, SeqCst);
            let is_down = seen.is_down.load(SeqCst);
            if !is_down {
                tokio::time::sleep(Duration::from_micros(seen.takes_us.load(SeqCst))).await;
            }
            seen.running.fetch_sub(1, SeqCst);
            if is_down {
                seen.refused.fetch_add(1, SeqCst);
                return Err(Failure::transient("503 service unavailable"));
            }
            seen.served.fetch_add(1, SeqCst);
            Ok(())
        })
    }
}

impl OutageDownstream {
    /// The pipeline in front of the downstream.
    pub fn pipeline(self: &Arc<Self>, name: &str, plan: &OutagePlan) -> Pipeline {
        self.takes_us.store(plan.takes.as_micros() as u64, SeqCst);
        let seen = Arc::clone(self);
        Pipeline::new(name)
            .policy(Policy::tiers(["1s", "5s", "30s"]))
            .concurrency(plan.limit)
            .breaker(plan.breaker.clone())
            .sink(OutageDoor(Arc::clone(self)))
            .on_health(move |changed| {
                if matches!(changed.change, HealthChange::Breaker { change: BreakerChange::Opened(_), .. }) {
                    let refused = seen.refused.load(SeqCst);
                    let _ = seen.refused_at_opening.compare_exchange(0, refused, SeqCst, SeqCst);
                }
            })
    }
}

/// The result of an outage.
#[derive(Clone, Debug, PartialEq)]
pub struct OutageReport {
    pub brought: u64,
    pub served: u64,
    pub dead: u64,
    /// Calls that the downstream refused.
    pub calls: u64,
    /// Refused calls until the breaker opened.
    pub to_open: u64,
    pub rounds: u32,
    pub probes: u32,
    /// Most concurrent calls after the downstream's return.
    pub peak: usize,
    pub limit: usize,
    /// From the downstream's return until the breaker closed, and until the backlog was gone.
    pub closed_after: Duration,
    pub caught_up_after: Duration,
}

impl OutageReport {
    /// Checks what must hold for every outage on every engine.
    pub fn check(&self) -> Result<(), String> {
        let Self { brought, served, dead, calls, to_open, probes, peak, limit, .. } = self;
        let bound = to_open + *limit as u64 + u64::from(*probes);
        let faults = [
            (*dead > 0, "messages died for the outage"),
            (served < brought, "messages were lost"),
            (*to_open == 0, "the breaker never opened"),
            (*calls > bound, "more calls than the failures needed to open, what ran then, and the probes"),
            (peak > limit, "more calls at once than the limit after the return"),
        ];
        match faults.iter().find(|(is_so, _)| *is_so) {
            Some((_, fault)) => Err(format!("{fault}: {self}")),
            None => Ok(()),
        }
    }
}

impl fmt::Display for OutageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { brought, served, dead, calls, to_open, rounds, probes, peak, limit, .. } = self;
        writeln!(f, "orders                       {brought}, served {served}")?;
        writeln!(
            f,
            "calls during the outage      {calls}: {to_open} until the breaker opened, {probes} probes in {rounds} rounds"
        )?;
        writeln!(f, "dead letters for the outage  {dead}")?;
        writeln!(f, "peak after the return        {peak} calls at once, limit {limit}")?;
        write!(
            f,
            "after the return             breaker closed in {:.1} s, backlog gone in {:.1} s",
            self.closed_after.as_secs_f64(),
            self.caught_up_after.as_secs_f64()
        )
    }
}

/// Produces orders at the plan's rate until told to end, and returns how many.
pub type Feed = JoinHandle<Result<u64, Error>>;

/// Runs the outage. `feed` starts producing orders; it ends soon after its flag is set.
pub async fn play(
    redrive: Redrive,
    name: &str,
    downstream: &Arc<OutageDownstream>,
    plan: &OutagePlan,
    feed: impl FnOnce(Arc<AtomicBool>, PipelineHandle) -> Feed,
) -> Result<OutageReport, Error> {
    let handle = redrive.pipeline(name).ok_or("no such pipeline")?;
    let (end, ended) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { redrive.run_until(ended).await });
    let stop = Arc::new(AtomicBool::new(false));
    let feed = feed(Arc::clone(&stop), handle.clone());
    wait("the first order", plan.before * PATIENCE, || downstream.served.load(SeqCst) > 0).await?;
    tokio::time::sleep(plan.before).await;

    downstream.is_down.store(true, SeqCst);
    tokio::time::sleep(plan.outage).await;
    let breaker = handle.figures().health.breaker;
    downstream.is_down.store(false, SeqCst);
    downstream.most_running.store(0, SeqCst);
    let back = Instant::now();

    let gathered = plan.before + plan.outage + plan.breaker.cooldown_max;
    let is_closed = || handle.figures().health.breaker.state == BreakerState::Closed;
    wait("the breaker to close", gathered * PATIENCE, is_closed).await?;
    let closed_after = back.elapsed();
    stop.store(true, SeqCst);
    let brought =
        tokio::task::spawn_blocking(move || feed.join()).await?.map_err(|_| "the feed ended badly")??;
    let all = || downstream.served.load(SeqCst) + handle.figures().dead.total() >= brought;
    wait("the end of the backlog", gathered * PATIENCE, all).await?;
    let caught_up_after = back.elapsed();
    let figures = handle.figures();
    drop(end);
    running.await??;
    Ok(OutageReport {
        brought,
        served: downstream.served.load(SeqCst),
        dead: figures.dead.total(),
        calls: downstream.refused.load(SeqCst),
        to_open: downstream.refused_at_opening.load(SeqCst),
        rounds: breaker.rounds,
        probes: breaker.probes,
        peak: downstream.most_running.load(SeqCst),
        limit: plan.limit as usize,
        closed_after,
        caught_up_after,
    })
}

async fn wait(what: &str, longest: Duration, is: impl Fn() -> bool) -> Result<(), Error> {
    let began = Instant::now();
    while !is() {
        if began.elapsed() > longest {
            return Err(format!("waited {} s in vain for {what}", longest.as_secs()).into());
        }
        tokio::time::sleep(STEP).await;
    }
    Ok(())
}

/// Ingests orders into a pipeline.
pub fn ingest_paced(rate: u64, stop: Arc<AtomicBool>, handle: PipelineHandle) -> Feed {
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let (began, mut brought) = (Instant::now(), 0);
        while !stop.load(SeqCst) {
            let wanted = (began.elapsed().as_secs_f64() * rate as f64) as u64;
            let messages: Vec<_> =
                (brought..wanted).map(|i| crate::order::message(i, handle.now())).collect();
            runtime.block_on(handle.ingest(messages))?;
            brought = wanted.max(brought);
            std::thread::sleep(STEP);
        }
        Ok(brought)
    })
}
