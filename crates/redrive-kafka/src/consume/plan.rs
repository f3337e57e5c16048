//! What is read and how it begins, as needed when partitions are assigned.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use redrive::internal::engine::EngineError;

use crate::consume::begin::RanBefore;
use crate::options::{Cluster, GroupStart, KafkaPipeline};
use crate::topics::{LaneKind, Topics, TopicsFault};

/// How long a request to the broker may take.
pub const ASK_MAX: Duration = Duration::from_secs(10);

/// What is read, and where it begins if nothing is committed.
#[derive(Debug)]
pub struct ReadPlan {
    pub pipeline: String,
    pub source: Arc<str>,
    pub topics: HashMap<Arc<str>, LaneKind>,
    pub start: Option<GroupStart>,
    pub progress: String,
    pub letters: String,
    /// All topics of the pipeline.
    pub owned: Topics,
    /// For reading `T.progress`.
    pub reader: ClientConfig,
    /// For enlarging topics.
    pub cluster: Cluster,
    pub description: KafkaPipeline,
    pub ordered: bool,
    /// Bounds on the records that wait in memory, and on their bytes, for all lanes together.
    pub source_records: usize,
    pub source_bytes: usize,
    pub tier_records: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum AssignFault {
    #[error("{0}")]
    Kafka(#[from] KafkaError),
    #[error(
        "nothing is committed for {topic} and no start was given; set start = \"earliest\" or \"latest\" in [engine]"
    )]
    NoStart { topic: String },
    #[error("{0}")]
    RanBefore(RanBefore),
    #[error("{0}")]
    Topics(#[from] TopicsFault),
}

/// Letters that cannot be read count as a timeout, so the assignment is retried.
impl From<EngineError> for AssignFault {
    fn from(error: EngineError) -> Self {
        tracing::debug!(%error, "the last letters cannot be read yet");
        Self::Kafka(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut))
    }
}
