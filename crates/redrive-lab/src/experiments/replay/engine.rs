//! Where the replay experiment runs: the embedded engine in a temporary directory, or topics of a broker.

use std::ops::Range;

use redrive::{Embedded, Pipeline, PipelineHandle, Policy, Redrive};

use super::super::setup::LabEngine;
use crate::order;
use crate::testbed::letters::listed;
use crate::testbed::{Load, Scratch};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Messages per batch.
const BATCH: u64 = 500;
/// Partitions of the source.
#[cfg(feature = "kafka")]
const PARTITIONS: u64 = 4;

/// The engine of one run. Removes its topics and directory on drop. Create and drop it outside of a runtime, because
/// it blocks on creating and removing topics.
#[derive(Debug)]
pub struct ReplayEngine<'a> {
    engine: LabEngine<'a>,
    scratch: Scratch,
    name: String,
}

impl<'a> ReplayEngine<'a> {
    pub fn new(engine: LabEngine<'a>) -> Result<Self, Error> {
        let scratch = Scratch::new()?;
        // The directory is new, so its name is unique.
        let name =
            scratch.path().file_name().map_or("orders".into(), |name| name.to_string_lossy().into_owned());
        if let LabEngine::Kafka(brokers) = engine {
            create_source(brokers, &name)?;
        }
        Ok(Self { engine, scratch, name })
    }

    /// The name of the pipeline.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn build(&self, pipeline: Pipeline, policy: &Policy) -> Result<Redrive, Error> {
        match self.engine {
            LabEngine::Embedded => {
                let engine = Embedded::open(self.scratch.path())?;
                Ok(Redrive::builder().engine(engine).pipeline(pipeline).build()?)
            }
            LabEngine::Kafka(brokers) => self.build_on(brokers, pipeline, policy),
        }
    }

    /// Offers messages; on return they are accepted. Calls `go_on` between batches.
    pub async fn feed(
        &self,
        handle: &PipelineHandle,
        load: &Load,
        numbers: Range<u64>,
        go_on: impl Fn(u64) -> bool,
    ) -> Result<bool, Error> {
        for first in numbers.clone().step_by(BATCH as usize) {
            let batch = first..(first + BATCH).min(numbers.end);
            match self.engine {
                LabEngine::Embedded => {
                    let now = handle.now();
                    let messages = batch.map(|n| load.message(n, order::payload(n), now));
                    handle.ingest(messages.collect::<Vec<_>>()).await?;
                }
                LabEngine::Kafka(brokers) => self.produce(brokers, load, batch)?,
            }
            if !go_on(first) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the numbers of all messages that have a letter: listed by the embedded engine, or read from the
    /// dead-letter topic.
    pub async fn letters(&self, handle: &PipelineHandle, of_seed: u64) -> Result<Vec<u64>, Error> {
        match self.engine {
            LabEngine::Embedded => listed(std::slice::from_ref(handle), None, of_seed).await,
            LabEngine::Kafka(brokers) => self.read_back(brokers, of_seed),
        }
    }

    #[cfg(feature = "kafka")]
    fn read_back(&self, brokers: &str, of_seed: u64) -> Result<Vec<u64>, Error> {
        let topic = format!("{}.DLQ", self.name);
        tokio::task::block_in_place(|| crate::kafka::letters::numbers(brokers, &topic, of_seed))
    }

    #[cfg(not(feature = "kafka"))]
    #[allow(clippy::unused_self, reason = "it is called as with Kafka")]
    fn read_back(&self, _: &str, _: u64) -> Result<Vec<u64>, Error> {
        Err("this build has no Kafka engine; build it with the feature `kafka`".into())
    }

    #[cfg(feature = "kafka")]
    fn build_on(&self, brokers: &str, pipeline: Pipeline, policy: &Policy) -> Result<Redrive, Error> {
        let stores = crate::testbed::kafka::stores(brokers, &self.name, &self.scratch, policy);
        let builder = Redrive::builder().engine(stores).pipeline(pipeline);
        Ok(tokio::task::block_in_place(|| builder.build())?)
    }

    #[cfg(feature = "kafka")]
    fn produce(&self, brokers: &str, load: &Load, numbers: Range<u64>) -> Result<(), Error> {
        use crate::fate::Fate;
        use crate::kafka::load::Loader;
        use crate::mark;

        tokio::task::block_in_place(|| {
            Loader::new(brokers, &self.name, PARTITIONS, &[])?.write_with(numbers, |n| {
                let key = load.key(n);
                let payload = mark::order(&load.id(n), key, n, 0, Fate::Success);
                ((key % PARTITIONS) as i32, format!("c-{key}"), payload)
            })
        })
    }

    #[cfg(not(feature = "kafka"))]
    #[allow(clippy::unused_self, reason = "it is called as with Kafka")]
    fn build_on(&self, _: &str, _: Pipeline, _: &Policy) -> Result<Redrive, Error> {
        Err("this build has no Kafka engine; build it with the feature `kafka`".into())
    }

    #[cfg(not(feature = "kafka"))]
    #[allow(clippy::unused_self, reason = "it is called as with Kafka")]
    fn produce(&self, _: &str, _: &Load, _: Range<u64>) -> Result<(), Error> {
        Err("this build has no Kafka engine; build it with the feature `kafka`".into())
    }
}

#[cfg(feature = "kafka")]
fn create_source(brokers: &str, name: &str) -> Result<(), Error> {
    use crate::kafka::topics::{self, Topic};

    topics::create(brokers, &[Topic { name, partitions: PARTITIONS as i32, settings: &[] }])
}

#[cfg(not(feature = "kafka"))]
fn create_source(_: &str, _: &str) -> Result<(), Error> {
    Err("this build has no Kafka engine; build it with the feature `kafka`".into())
}

#[cfg(feature = "kafka")]
impl Drop for ReplayEngine<'_> {
    fn drop(&mut self) {
        use crate::kafka::topics;

        // Topics that cannot be removed now stay on the broker under the name of this run.
        if let LabEngine::Kafka(brokers) = self.engine
            && let Ok(found) = topics::of_run(brokers, &self.name)
        {
            let _ = topics::delete(brokers, &found.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
