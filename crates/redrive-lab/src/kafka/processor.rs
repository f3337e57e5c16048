//! A processor of the workload: one pipeline on the Kafka engine, as used by benchmarks and fault tests.

use std::path::PathBuf;

use redrive::{BreakerSettings, GuardSettings, Mode, Pipeline, Policy, Redrive};
use redrive_kafka::{Cluster, GroupStart, KafkaPipeline, KafkaStores, Only, TopicsMode};

use super::Error;

/// The settings that differ between processors.
#[derive(Clone, Debug)]
pub struct Processor {
    pub brokers: String,
    /// Pipeline, group, and prefix of the topics it owns.
    pub name: String,
    pub source: String,
    /// The instance id for static membership.
    pub member: Option<String>,
    /// Delays of the retries, without jitter.
    pub tiers: Vec<String>,
    pub state_dir: PathBuf,
    pub concurrency: u32,
    /// Retries in place, one delivery at a time per partition.
    pub blocking: bool,
    /// Crashes that quarantine a suspect, if not the default.
    pub crash_threshold: Option<u32>,
    /// Settings of librdkafka.
    pub passed_on: Vec<(String, String)>,
}

impl Processor {
    /// The pipeline, still without a handler. Failures are not classified, as in all comparisons.
    pub fn pipeline(&self) -> Pipeline {
        let policy = Policy::tiers(self.tiers.iter().map(String::as_str)).jitter("none").classify(false);
        let policy = match self.crash_threshold {
            Some(threshold) => policy.crash(threshold, "5m"),
            None => policy,
        };
        // Near the end of a run only poison is left. It looks like an outage, and the outage gate would defer it.
        let policy = policy.outage_gate(false);
        let mode = if self.blocking { Mode::Blocking } else { Mode::NonBlocking };
        // No breaker and no guard either: a quarter of all attempts fails on purpose.
        let pipeline = Pipeline::new(&self.name).policy(policy).concurrency(self.concurrency).mode(mode);
        pipeline.breaker(BreakerSettings::off()).guard(GuardSettings::off())
    }

    pub fn build(&self, pipeline: Pipeline) -> Result<Redrive, Error> {
        std::fs::create_dir_all(&self.state_dir)?;
        let cluster = Cluster {
            brokers: vec![self.brokers.clone()],
            group: self.name.clone(),
            member: self.member.clone(),
            start: Some(GroupStart::Earliest),
            topics: TopicsMode::Create,
            state_dir: self.state_dir.clone(),
            passed_on: self.passed_on.clone(),
        };
        let kafka = KafkaPipeline {
            name: self.name.clone(),
            source: self.source.clone(),
            tiers: self
                .tiers
                .iter()
                .map(|tier| redrive_core::duration::parse(tier))
                .collect::<Result<_, _>>()?,
            id: None,
            tenant: None,
            ttl: None,
            blocking: self.blocking,
            only: Only::Everything,
            subscriptions: false,
        };
        let stores = KafkaStores::new(cluster, vec![kafka]);
        Ok(Redrive::builder().engine(stores).pipeline(pipeline).build()?)
    }
}
