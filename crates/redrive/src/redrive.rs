//! The user's handle to the built pipelines, and the run that drives them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::handle::PipelineHandle;
use crate::run::built::Built;
use crate::run::clock::Clock;
use crate::run::report::{RunError, RunReport};
use crate::run::running::Running;

/// All pipelines of a process. Clones are handles to the same pipelines.
///
/// ```
/// use redrive::{Failure, MemoryStores, Message, Pipeline, Policy, Redrive};
///
/// async fn charge(message: &Message) -> Result<(), Failure> {
///     println!("charging {}", message.id());
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let payments = Pipeline::new("payments").policy(Policy::tiers(["5s", "1m", "10m"])).handler(charge);
/// let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(payments).build()?;
/// let payments = redrive.pipeline("payments").ok_or("no such pipeline")?;
/// payments.ingest([Message::builder("p-1").payload(r#"{"amount":1999}"#).build()?]).await?;
///
/// // A service gives its shutdown signal here.
/// let until_done = async {
///     while payments.counts().await.is_ok_and(|counts| counts.pending() > 0) {
///         tokio::task::yield_now().await;
///     }
/// };
/// let report = redrive.run_until(until_done).await?;
/// assert_eq!(report.total().succeeded, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redrive {
    shared: Arc<RunningParts>,
}

struct RunningParts {
    pipelines: Vec<Arc<Built>>,
    clock: Arc<dyn Clock>,
    drain: Duration,
}

impl Redrive {
    pub(crate) fn new(pipelines: Vec<Arc<Built>>, clock: Arc<dyn Clock>, drain: Duration) -> Self {
        Self { shared: Arc::new(RunningParts { pipelines, clock, drain }) }
    }

    /// A handle to the pipeline of this name.
    pub fn pipeline(&self, name: &str) -> Option<PipelineHandle> {
        let built = self.shared.pipelines.iter().find(|built| &*built.settings.name == name)?;
        Some(PipelineHandle::new(Arc::clone(built), Arc::clone(&self.shared.clock)))
    }

    /// Handles to all pipelines, in the order they were given to the builder.
    pub fn pipelines(&self) -> impl Iterator<Item = PipelineHandle> {
        let RunningParts { pipelines, clock, .. } = &*self.shared;
        pipelines.iter().map(|built| PipelineHandle::new(Arc::clone(built), Arc::clone(clock)))
    }

    /// Runs all pipelines until `until` is ready, then lets running handlers finish within the drain time, and closes
    /// the stores. Waiting messages stay stored. If the store of one pipeline fails, all are stopped.
    ///
    /// Dropping this future stops at once: running handlers are abandoned and their messages wait again.
    pub async fn run_until(&self, until: impl Future) -> Result<RunReport, RunError> {
        let runtime = Handle::try_current().map_err(|_| RunError::NoRuntime)?;
        let RunningParts { pipelines, clock, drain } = &*self.shared;
        let mut running = Running::start(pipelines, clock, *drain, &runtime)?;
        let stopped_early = tokio::select! {
            _ = until => None,
            end = running.first_end() => Some(end),
        };
        let stop_began = Instant::now();
        let mut ends = running.drain().await;
        ends.extend(stopped_early);
        let mut report = RunReport::default();
        for built in pipelines {
            let Some(at) = ends.iter().position(|(name, _)| *name == built.settings.name) else { continue };
            let (name, end) = ends.swap_remove(at);
            report.pipelines.push((name.to_string(), end?));
        }
        report.drain_took = stop_began.elapsed();
        Ok(report)
    }
}

impl fmt::Debug for Redrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.shared.pipelines.iter().map(|built| &*built.settings.name).collect();
        f.debug_struct("Redrive").field("pipelines", &names).finish_non_exhaustive()
    }
}
