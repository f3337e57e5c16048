//! What a server serves: the pipelines with their configuration, their replays, and the action log.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use redrive::PipelineHandle;
use redrive::actions::Actions;
use redrive::internal::events::Events;
use redrive::internal::subscriptions::{Counts as SubscriptionCounts, Subscriptions};
use redrive::letters::Redaction;
use redrive::replay::Replays;
use redrive_core::nearest::nearest;

use crate::ingest::Intake;
use crate::problem::Problem;
use crate::readers::Readers;

/// One pipeline, as served by the API.
#[derive(Clone, Debug)]
pub struct Served {
    pub handle: PipelineHandle,
    /// Where ids and tenants of new messages come from.
    pub intake: Intake,
    /// The kind of its engine: `embedded`, `memory`, …
    pub engine: String,
    /// The topic its messages come from, unless they come over this API.
    pub source: Option<String>,
    /// Finds other readers of that topic.
    pub readers: Readers,
    /// The table of endpoints, if the sink has one.
    pub subscriptions: Option<Subscriptions>,
    /// The events of the pipeline, for subscribers.
    pub events: Events,
    /// What to hide of messages and letters.
    pub redaction: Redaction,
    /// Letters that `letter_retention` has discarded since the process started.
    pub expired: Arc<AtomicU64>,
}

impl Served {
    pub fn new(handle: PipelineHandle) -> Self {
        Self {
            handle,
            intake: Intake::default(),
            engine: "embedded".to_owned(),
            source: None,
            readers: Readers::default(),
            subscriptions: None,
            events: Events::default(),
            redaction: Redaction::default(),
            expired: Arc::default(),
        }
    }

    /// The counts of its table of subscriptions, if it has one.
    pub fn subscription_counts(&self) -> Option<SubscriptionCounts> {
        self.subscriptions.as_ref().map(|table| table.counts(self.handle.now()))
    }
}

/// Everything behind the API.
#[derive(Debug)]
pub struct Service {
    pub pipelines: Vec<Served>,
    pub replays: Replays,
    pub actions: Actions,
}

impl Service {
    /// The pipeline with this name, or an error that names the alternatives.
    pub fn find(&self, name: &str) -> Result<&Served, Problem> {
        let names = || self.pipelines.iter().map(|served| served.handle.name());
        self.pipelines.iter().find(|served| served.handle.name() == name).ok_or_else(|| {
            let hint = match nearest(name, names()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("there are: {}", names().collect::<Vec<_>>().join(", ")),
            };
            Problem::not_found(format!("there is no pipeline `{name}`"), hint)
        })
    }
}
