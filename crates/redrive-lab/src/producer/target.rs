//! The recipient of the orders.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redrive::internal::engine::IngestError;
use redrive::{Accepted, PipelineHandle};

use super::answer::BatchAnswer;
use super::batch::OrderBatch;
use super::http::{Bearer, HttpTarget, TargetFault};

type Offered = Pin<Box<dyn Future<Output = BatchAnswer> + Send>>;
type Callback = Arc<dyn Fn(Arc<OrderBatch>) -> Offered + Send + Sync>;

/// Where the orders go.
#[derive(Clone)]
pub enum Target {
    Http(Arc<HttpTarget>),
    Callback(Callback),
}

impl Target {
    /// Sends orders to the ingest route of a processor, see [`HttpTarget::new`].
    pub fn http(url: &str, token: Option<Bearer>) -> Result<Self, TargetFault> {
        Ok(Self::Http(Arc::new(HttpTarget::new(url, token)?)))
    }

    /// Passes orders to a function in this process.
    pub fn callback<F, Fut>(offer: F) -> Self
    where
        F: Fn(Arc<OrderBatch>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = BatchAnswer> + Send + 'static,
    {
        Self::Callback(Arc::new(move |batch| Box::pin(offer(batch))))
    }

    /// Ingests orders into a pipeline in this process.
    pub fn pipeline(handle: PipelineHandle) -> Self {
        Self::callback(move |batch| {
            let handle = handle.clone();
            async move { answer_of(handle.ingest(batch.messages()).await) }
        })
    }

    pub(super) async fn offer(&self, batch: &Arc<OrderBatch>) -> BatchAnswer {
        match self {
            Self::Http(target) => target.offer(batch).await,
            Self::Callback(offer) => offer(Arc::clone(batch)).await,
        }
    }
}

fn answer_of(answer: Result<Vec<Accepted>, IngestError>) -> BatchAnswer {
    match answer {
        Ok(accepted) => {
            let known = accepted.iter().filter(|one| matches!(one, Accepted::Duplicate { .. }));
            BatchAnswer::Accepted { duplicates: known.count() as u64 }
        }
        Err(error @ (IngestError::Stopped | IngestError::Storage(_))) => {
            BatchAnswer::Rejected { why: error.to_string() }
        }
        // A full disk or too much pending: temporary.
        Err(_) => BatchAnswer::Refused { retry_after: None },
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(target) => target.fmt(f),
            Self::Callback(_) => f.write_str("Callback"),
        }
    }
}
