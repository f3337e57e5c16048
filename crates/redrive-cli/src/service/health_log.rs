//! Reports changes of a sink's health, and records some of them.

use std::sync::{Arc, OnceLock};

use redrive::actions::{Action, ActionKind, Actions};
use redrive::{HealthChange, HealthChanged};

/// The actor of the guard's actions.
const ACTOR: &str = "guard";

/// Writes the log, and adds the guard's pauses to the action log, so that a restart keeps them.
#[derive(Clone, Debug, Default)]
pub struct HealthLog {
    actions: Arc<OnceLock<Actions>>,
}

impl HealthLog {
    /// Sets the action log, which is opened after the pipelines are described.
    pub fn write_to(&self, actions: &Actions) {
        // Only the first call has an effect, and there is only one.
        let _ = self.actions.set(actions.clone());
    }

    pub fn tell(&self, changed: &HealthChanged) {
        let HealthChanged { pipeline, at, change } = changed;
        let (pipeline, message_id) = (&**pipeline, change.message_id());
        if change.is_bad() {
            tracing::warn!(target: "redrive::health", pipeline, message_id, "{change}");
        } else {
            tracing::info!(target: "redrive::health", pipeline, message_id, "{change}");
        }
        if let (HealthChange::Flood(flood), Some(actions)) = (change, self.actions.get()) {
            let mut action = Action::new(*at, ACTOR, ActionKind::Pause, pipeline);
            action.note = Some(redrive::internal::dispatch::health::flood(flood));
            let actions = actions.clone();
            tokio::spawn(async move {
                if let Err(error) = actions.record(action).await {
                    tracing::error!("could not persist the guard's pause; a restart will lift it: {error}");
                }
            });
        }
    }
}
