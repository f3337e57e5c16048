//! How a run went, or why it could not continue.

use std::fmt;
use std::time::Duration;

use crate::engine::EngineError;

/// The result of a pipeline's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PipelineReport {
    /// Messages that were delivered.
    pub succeeded: u64,
    /// Retries and deferrals, in place or written.
    pub retried: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Calls that were running when the stop was requested, and finished.
    pub drained: u64,
    /// Calls that were abandoned at the end of the drain time; their messages stay pending as if they had not been
    /// started.
    pub interrupted: u64,
}

/// The result of a run of all pipelines.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// The reports by pipeline name, in the order of the builder.
    pub pipelines: Vec<(String, PipelineReport)>,
    /// From the stop request until everything was settled.
    pub drain_took: Duration,
}

impl RunReport {
    /// The sum of all pipelines.
    pub fn total(&self) -> PipelineReport {
        let add = |sum: PipelineReport, one: &PipelineReport| PipelineReport {
            succeeded: sum.succeeded + one.succeeded,
            retried: sum.retried + one.retried,
            dead: sum.dead + one.dead,
            drained: sum.drained + one.drained,
            interrupted: sum.interrupted + one.interrupted,
        };
        self.pipelines.iter().map(|(_, report)| report).fold(PipelineReport::default(), add)
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PipelineReport { drained, interrupted, .. } = self.total();
        let seconds = self.drain_took.as_secs_f64();
        write!(f, "drained {drained} in flight, {interrupted} interrupted, {seconds:.1} s")
    }
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no tokio runtime.
    #[error("run_until needs a tokio runtime: call it inside #[tokio::main] or Runtime::block_on")]
    NoRuntime,
    /// The runtime has no timer.
    #[error(
        "the tokio runtime has no timer, and handlers need a timeout: build it with enable_time() or enable_all()"
    )]
    NoTimer,
    /// The pipelines have been run before.
    #[error("these pipelines have been run before: build them again for another run")]
    RanBefore,
    /// A store failed.
    #[error("pipeline `{pipeline}` stopped: {source}")]
    Engine {
        /// The pipeline.
        pipeline: String,
        /// The error.
        source: EngineError,
    },
    /// A thread could not be started.
    #[error("pipeline `{pipeline}` could not start its thread: {source}")]
    Thread {
        /// The pipeline.
        pipeline: String,
        /// The error.
        source: std::io::Error,
    },
    /// A dispatch thread panicked.
    #[error("the dispatch thread of pipeline `{pipeline}` died; this is a bug, please report it")]
    Died {
        /// The pipeline.
        pipeline: String,
    },
}
