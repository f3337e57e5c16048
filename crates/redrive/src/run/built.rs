//! A pipeline that passed all checks and has an open store: everything that a run needs, and what its handle
//! accesses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::Policy;

use super::command::EngineSlot;
use super::hooks::Listeners;
use super::shared_figures::SharedFigures;
use super::wake::Wake;
use super::watchdog::OnStuck;
use crate::backoff::Backoff;
use crate::dispatch::ProtectionSettings;
use crate::engine::groups::Grouping;
use crate::engine::{DeliveryOrder, Engine, Ingest, SharedRecords};
use crate::handler::AnyHandler;

pub(crate) struct Built {
    pub(crate) settings: Settings,
    pub(crate) board: Arc<SharedFigures>,
    pub(crate) ingest: Option<Arc<dyn Ingest>>,
    pub(crate) shared_records: Option<Arc<dyn SharedRecords>>,
    pub(crate) slot: Arc<EngineSlot>,
    pub(crate) wake: Arc<Wake>,
}

/// The user's settings of a pipeline, checked.
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    pub(crate) handler: AnyHandler,
    pub(crate) listeners: Listeners,
    pub(crate) on_stuck: Option<OnStuck>,
    pub(crate) protection: ProtectionSettings,
    pub(crate) ordering: DeliveryOrder,
    pub(crate) grouping: Grouping,
    /// How long the receiver remembers ids, if set.
    pub(crate) ledger_horizon: Option<Duration>,
    /// 0 means no limit.
    pub(crate) max_pending: u64,
}

impl Built {
    pub(crate) fn new(settings: Settings, engine: Box<dyn Engine>) -> Self {
        let board = SharedFigures::new(&settings.policy, engine.counts(), engine.condition());
        Self {
            settings,
            board: Arc::new(board),
            ingest: engine.ingest(),
            shared_records: engine.shared_records(),
            slot: Arc::new(EngineSlot::new(engine)),
            wake: Arc::default(),
        }
    }
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Built").field("name", &self.settings.name).finish_non_exhaustive()
    }
}
