//! Opens the engine of each pipeline.

use redrive::Stores;
use redrive::internal::engine::{Engine, EngineError, StoreOptions};

use crate::engine::{self, KafkaEngine};
use crate::options::{Cluster, KafkaPipeline};

/// The pipelines of a process that live in one cluster.
#[derive(Clone, Debug)]
pub struct KafkaStores {
    cluster: Cluster,
    pipelines: Vec<KafkaPipeline>,
}

impl KafkaStores {
    pub fn new(cluster: Cluster, pipelines: Vec<KafkaPipeline>) -> Self {
        Self { cluster, pipelines }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Opens a pipeline and returns the concrete engine.
    pub fn engine(&self, pipeline: &str, options: StoreOptions) -> Result<KafkaEngine, EngineError> {
        let found = self.pipelines.iter().find(|one| one.name == pipeline);
        let found = found.ok_or_else(|| EngineError::Directory {
            problem: format!("no Kafka topics are configured for the pipeline {pipeline}"),
            fix: "name its source",
        })?;
        engine::open(&self.cluster, found, options)
    }
}

impl Stores for KafkaStores {
    fn open(&self, pipeline: &str, options: StoreOptions) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(self.engine(pipeline, options)?))
    }
}
