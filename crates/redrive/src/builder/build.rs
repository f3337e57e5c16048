//! Builds pipelines. `build` checks everything, reports all faults at once, and only then opens the stores.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::faults::{BuildError, BuildFault, FaultKind};
use super::pipeline::Pipeline;
use crate::engine::{Engine, EngineError, LastEnd, StoreOptions};
use crate::redrive::Redrive;
use crate::run::built::Built;
use crate::run::clock::{Clock, WallClock};
use crate::stores::Stores;

/// Default drain time. Shorter than the 30 s that an orchestrator usually gives.
pub(crate) const DRAIN_DEFAULT: Duration = Duration::from_secs(20);
/// How many stores are opened concurrently.
const OPEN_AT_ONCE: usize = 8;
/// The longest drain time that can be set.
pub(crate) const DRAIN_MAX: Duration = Duration::from_hours(24);

/// Collects pipelines; nothing is checked before [`Self::build`].
///
/// ```
/// use redrive::{MemoryStores, Message, Pipeline, Redrive};
///
/// let built = Redrive::builder()
///     .engine(MemoryStores::new())
///     .pipeline(Pipeline::new("orders").handler_fn(|_: Message| async { Ok(()) }))
///     .pipeline(Pipeline::new("orders")) // the same name again, and no handler
///     .build();
/// let faults = built.unwrap_err();
/// assert!(faults.to_string().contains("orders"));
/// ```
#[must_use]
pub struct Builder {
    stores: Option<Box<dyn Stores>>,
    pipelines: Vec<Pipeline>,
    clock: Arc<dyn Clock>,
    drain: Duration,
    last_end: LastEnd,
}

impl Redrive {
    /// Returns an empty [`Builder`].
    pub fn builder() -> Builder {
        Builder {
            stores: None,
            pipelines: Vec::new(),
            clock: Arc::new(WallClock),
            drain: DRAIN_DEFAULT,
            last_end: LastEnd::Unknown,
        }
    }
}

impl Builder {
    /// The engine that stores the messages.
    pub fn engine(mut self, stores: impl Stores + 'static) -> Self {
        self.stores = Some(Box::new(stores));
        self
    }

    /// Adds a pipeline.
    pub fn pipeline(mut self, pipeline: Pipeline) -> Self {
        self.pipelines.push(pipeline);
        self
    }

    /// How long running handlers may continue after a stop is requested. Calls still unfinished then are abandoned,
    /// and their messages stay pending.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// How the previous process ended, if the supervisor knows. After [`LastEnd::FromOutside`] (a SIGKILL not caused
    /// by lack of memory, say) the messages that were running are not suspected of having crashed it.
    pub fn last_end(mut self, last_end: LastEnd) -> Self {
        self.last_end = last_end;
        self
    }

    /// The clock that determines when messages are due, for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Checks everything, then opens the stores. Nothing is opened if anything is wrong.
    pub fn build(self) -> Result<Redrive, BuildError> {
        let mut faults = Vec::new();
        if self.stores.is_none() {
            let fix = "add .engine(…), for example .engine(MemoryStores::new()) in a test";
            faults.push(BuildFault::general("engine", "", "no engine is set", fix));
        }
        if self.pipelines.is_empty() {
            let fix = "add .pipeline(Pipeline::new(\"name\").handler(…))";
            faults.push(BuildFault::general("pipeline", "", "there is no pipeline", fix));
        }
        if self.drain > DRAIN_MAX {
            let value = format!("{:?}", self.drain);
            let problem = format!("`drain` is {value}, at most {DRAIN_MAX:?} can be waited");
            faults.push(BuildFault::general("drain", value, &problem, "drain = \"20s\""));
        }
        let mut names = HashSet::new();
        for pipeline in &self.pipelines {
            if !names.insert(pipeline.name()) {
                let name = pipeline.name();
                let problem = format!("two pipelines are named `{name}`");
                faults.push(BuildFault::of(name, "name", name, &problem, "give one another name"));
            }
        }
        let checked: Vec<_> =
            self.pipelines.into_iter().filter_map(|pipeline| pipeline.check(&mut faults)).collect();
        let Some(stores) = self.stores.filter(|_| faults.is_empty()) else {
            return Err(BuildError { faults });
        };
        let mut built = Vec::new();
        let names: Vec<String> = checked.iter().map(|(settings, _)| settings.name.to_string()).collect();
        let (drain, last_end) = (Some(self.drain), self.last_end);
        let (all_settings, all_options): (Vec<_>, Vec<_>) = checked
            .into_iter()
            .map(|(settings, options)| (settings, StoreOptions { drain, last_end, ..options }))
            .unzip();
        for (settings, opened) in all_settings.into_iter().zip(open_all(&*stores, &names, all_options)) {
            match opened {
                Ok(engine) => built.push(Arc::new(Built::new(settings, engine))),
                Err(error) => {
                    // The engine's error message says what to do.
                    let fault = BuildFault::of(&settings.name, "engine", "", &error.to_string(), "");
                    faults.push(BuildFault { kind: FaultKind::of(&error), ..fault });
                }
            }
        }
        if !faults.is_empty() {
            return Err(BuildError { faults });
        }
        Ok(Redrive::new(built, self.clock, self.drain))
    }
}

/// Opens the stores of all pipelines, several at a time, because opening waits for disks or brokers.
fn open_all(
    stores: &dyn Stores,
    names: &[String],
    options: Vec<StoreOptions>,
) -> Vec<Result<Box<dyn Engine>, EngineError>> {
    let mut opened = Vec::with_capacity(names.len());
    let mut options = options.into_iter();
    for some in names.chunks(OPEN_AT_ONCE) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .zip(options.by_ref())
                .map(|(name, options)| scope.spawn(move || stores.open(name, options)))
                .collect();
            let ended = || Err(EngineError::Unavailable("opening it panicked".to_owned()));
            opened.extend(threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| ended())));
        });
    }
    opened
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("pipelines", &self.pipelines)
            .field("drain", &self.drain)
            .finish_non_exhaustive()
    }
}
