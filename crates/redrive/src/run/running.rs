//! Running pipelines: dispatch threads and handler tasks, started and stopped together.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::built::Built;
use super::clock::Clock;
use super::dispatcher::{Buffers, Dispatcher, Stop};
use super::exchange::Exchange;
use super::exclusive::{ExclusiveRuns, PipelineTurn};
use super::hooks::Hooks;
use super::last_runs::LastRuns;
use super::report::{PipelineReport, RunError};
use super::runner::Runner;
use super::steer::DurableAnswers;
use super::wake::Wake;
use super::watch::Watch;
use super::watchdog::Watchdog;
use crate::dispatch::{Machine, ProtectionSettings};
use crate::engine::{Engine, TakeGate};

/// Minimum time for hooks that are late at the end of the drain time.
const HOOKS_LAST: Duration = Duration::from_millis(100);

type End = (Arc<str>, Result<PipelineReport, RunError>);

/// The running pipelines. Dropping this stops everything at once.
#[derive(Debug)]
pub(crate) struct Running {
    stops: Vec<(Arc<Stop>, Arc<Wake>)>,
    ends: mpsc::UnboundedReceiver<End>,
    /// Threads that have not reported their end yet.
    left: usize,
    runners: JoinSet<()>,
    hooks: JoinSet<()>,
    drain: Duration,
}

impl Running {
    pub(crate) fn start(
        pipelines: &[Arc<Built>],
        clock: &Arc<dyn Clock>,
        drain: Duration,
        runtime: &Handle,
    ) -> Result<Self, RunError> {
        check_timer()?;
        let engines: Option<Vec<_>> = pipelines.iter().map(|built| built.slot.take()).collect();
        let engines = engines.ok_or(RunError::RanBefore)?;
        let (sender, ends) = mpsc::unbounded_channel();
        let mut running =
            Self { stops: Vec::new(), ends, left: 0, runners: JoinSet::new(), hooks: JoinSet::new(), drain };
        let turns = ExclusiveRuns::of(pipelines.len());
        for ((built, engine), turn) in pipelines.iter().zip(engines).zip(turns) {
            running.start_one(built, (engine, turn), clock, sender.clone(), runtime)?;
        }
        Ok(running)
    }

    fn start_one(
        &mut self,
        built: &Built,
        (engine, turn): (Box<dyn Engine>, PipelineTurn),
        clock: &Arc<dyn Clock>,
        ends: mpsc::UnboundedSender<End>,
        runtime: &Handle,
    ) -> Result<(), RunError> {
        let (settings, wake) = (&built.settings, Arc::clone(&built.wake));
        let exchange = Arc::new(Exchange::new(settings.concurrency, Arc::clone(&wake)));
        let (cancel, cancelled) = watch::channel(false);
        let runner = Runner {
            exchange: Arc::clone(&exchange),
            pipeline: Arc::clone(&settings.name),
            handler: settings.handler.clone(),
            timeout: settings.timeout,
            cancelled,
        };
        for _ in 0..runtime.metrics().num_workers() {
            self.runners.spawn_on(runner.clone().run(), runtime);
        }
        let telling = Arc::clone(&exchange);
        self.runners.spawn_on(async move { telling.tell_ends().await }, runtime);
        let (hooks, calling) = Hooks::new(&settings.name, settings.listeners.clone(), &wake);
        if let Some(calling) = calling {
            self.hooks.spawn_on(calling, runtime);
        }
        let stop = Arc::new(Stop::default());
        self.stops.push((Arc::clone(&stop), Arc::clone(&wake)));
        let protection =
            ProtectionSettings { one_endpoint: settings.handler.one_endpoint, ..settings.protection.clone() };
        let mut machine = Machine::protected(Arc::clone(&settings.policy), settings.concurrency, &protection);
        machine = machine.with_backoff(settings.backoff.clone());
        if let Some(router) = &settings.handler.router {
            machine = machine.routed(router.clone(), &protection);
        }
        machine.gate(built.slot.gate());
        if settings.listeners.failed.is_some() {
            machine.watch_failures(Arc::clone(&settings.name));
        }
        let dispatcher = Dispatcher {
            engine,
            machine,
            board: Arc::clone(&built.board),
            watch: Watch::new(Arc::clone(&built.board), Arc::clone(&built.slot)),
            exchange,
            hooks,
            slot: Arc::clone(&built.slot),
            clock: Arc::clone(clock),
            wake,
            stop,
            drain: self.drain,
            cancel,
            turn,
            watchdog: Watchdog::new(settings.on_stuck.clone(), settings.timeout, std::time::Instant::now()),
            last_runs: LastRuns::after(&[]),
            name: Arc::clone(&settings.name),
            on_share: settings.handler.on_share.clone(),
            answers: DurableAnswers::default(),
            group_gate: TakeGate::Open,
            buffers: Buffers::default(),
        };
        let last_word = LastWord { pipeline: Arc::clone(&settings.name), ends };
        let thread = thread::Builder::new().name(format!("redrive-{}", settings.name));
        let spawned = thread.spawn(move || last_word.run(dispatcher));
        self.left += 1;
        spawned.map(drop).map_err(|source| RunError::Thread { pipeline: settings.name.to_string(), source })
    }

    /// The first pipeline that ends on its own.
    pub(crate) async fn first_end(&mut self) -> End {
        match self.next_end().await {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }

    async fn next_end(&mut self) -> Option<End> {
        if self.left == 0 {
            return None;
        }
        let end = self.ends.recv().await;
        self.left -= 1;
        end
    }

    /// Asks all pipelines to drain, and waits for their ends.
    pub(crate) async fn drain(mut self) -> Vec<End> {
        let patience_ends = Instant::now() + self.drain;
        for (stop, wake) in &self.stops {
            stop.drain(wake);
        }
        let mut ends = Vec::new();
        while let Some(end) = self.next_end().await {
            ends.push(end);
        }
        let hooks_end = patience_ends.max(Instant::now() + HOOKS_LAST);
        let mut hooks = std::mem::take(&mut self.hooks);
        let _ =
            tokio::time::timeout_at(hooks_end, async { while hooks.join_next().await.is_some() {} }).await;
        ends
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (stop, wake) in &self.stops {
            stop.now(wake);
        }
    }
}

/// Reports how a dispatch thread ended, even if it panicked.
struct LastWord {
    pipeline: Arc<str>,
    ends: mpsc::UnboundedSender<End>,
}

impl LastWord {
    fn run(self, dispatcher: Dispatcher) {
        let name = || self.pipeline.to_string();
        let ended = catch_unwind(std::panic::AssertUnwindSafe(|| dispatcher.run()));
        let end = match ended {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(source)) => Err(RunError::Engine { pipeline: name(), source }),
            Err(_) => Err(RunError::Died { pipeline: name() }),
        };
        // There is no receiver if the run was dropped.
        let _ = self.ends.send((self.pipeline, end));
    }
}

/// A runtime without a timer makes every timer panic, so check that before the first message.
fn check_timer() -> Result<(), RunError> {
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(|_| RunError::NoTimer)
}
