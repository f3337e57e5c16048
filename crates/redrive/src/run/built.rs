//! A pipeline that passed every check and has its store open: everything a run needs, and what its handle reaches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::Policy;

use super::command::Seat;
use super::hooks::Hook;
use super::wake::Wake;
use crate::engine::{Engine, Ingest};
use crate::handler::AnyHandler;

pub(crate) struct Built {
    pub(crate) name: Arc<str>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    pub(crate) handler: AnyHandler,
    pub(crate) hook: Option<Hook>,
    pub(crate) ingest: Option<Arc<dyn Ingest>>,
    pub(crate) seat: Arc<Seat>,
    pub(crate) wake: Arc<Wake>,
}

/// What a user decided about a pipeline, after the checks.
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) policy: Policy,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    pub(crate) handler: AnyHandler,
    pub(crate) hook: Option<Hook>,
}

impl Built {
    pub(crate) fn new(settings: Settings, engine: Box<dyn Engine>) -> Self {
        Self {
            name: settings.name.into(),
            policy: Arc::new(settings.policy),
            concurrency: settings.concurrency,
            timeout: settings.timeout,
            handler: settings.handler,
            hook: settings.hook,
            ingest: engine.ingest(),
            seat: Arc::new(Seat::new(engine)),
            wake: Arc::default(),
        }
    }
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Built").field("name", &self.name).finish_non_exhaustive()
    }
}
