//! Finds other readers of the topic that a pipeline's messages come from. Only the code that set up the engine can do
//! that.

use std::fmt;
use std::sync::Arc;

use redrive::HandleError;
use redrive::internal::engine::EngineError;

use crate::problem::{Code, Problem};

type Ask = dyn Fn() -> Result<Vec<String>, EngineError> + Send + Sync;

/// A function that finds other consumer groups that read a pipeline's source. None by default.
#[derive(Clone, Default)]
pub struct Readers {
    ask: Option<Arc<Ask>>,
}

impl Readers {
    /// Wraps a function. `ask` may block on a remote answer.
    pub fn new(ask: impl Fn() -> Result<Vec<String>, EngineError> + Send + Sync + 'static) -> Self {
        Self { ask: Some(Arc::new(ask)) }
    }

    pub(crate) async fn others(&self) -> Result<Vec<String>, Problem> {
        let Some(ask) = self.ask.clone() else {
            let message = "this processor cannot determine who else reads the topic";
            return Err(Problem::new(
                Code::Conflict,
                message,
                "ask the cluster, then start it without a dry run",
            ));
        };
        let asked = tokio::task::spawn_blocking(move || ask()).await;
        let asked = asked.unwrap_or_else(|error| Err(EngineError::Unavailable(error.to_string())));
        Ok(asked.map_err(HandleError::from)?)
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("known", &self.ask.is_some()).finish()
    }
}
