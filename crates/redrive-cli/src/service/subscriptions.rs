//! The subscriptions of a push pipeline: described before the stores are open, loaded afterwards, and checked for
//! damage regularly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive::internal::engine::EngineError;
use redrive::internal::subscriptions::check;
use redrive::internal::subscriptions::file::SubscriptionFile;
use redrive::internal::subscriptions::{SubscriptionStore, Subscriptions};
use tokio::runtime::Runtime;

use super::engine_failed::engine_failed;
use crate::config::{Config, EngineKind, PipelineConfig};
use crate::exit::Failed;

/// The table of a pipeline whose sink has subscriptions, not loaded yet.
pub fn table(pipeline: &PipelineConfig) -> Option<Subscriptions> {
    let settings = pipeline.sink.settings.subscriptions()?;
    Some(Subscriptions::new(&pipeline.name, settings.purge))
}

/// Loads a table from the data of the pipeline's engine, which must be open. Returns the damage found.
pub fn open(
    table: &Subscriptions,
    config: &Config,
    pipeline: &PipelineConfig,
) -> Result<Vec<String>, Failed> {
    let Some(store) = store(config, pipeline)? else { return Ok(Vec::new()) };
    if let Some(dir) = log_dir(config, pipeline) {
        note_damage(table, &dir);
    }
    let mut findings = table.open(store).map_err(|error| engine_failed(&error))?;
    findings.extend(table.missing_keys().into_iter().map(|(key, count)| {
        let (name, were) = (&pipeline.name, if count == 1 { "subscription" } else { "subscriptions" });
        format!(
            "pipeline {name}: key {key} is still used by {count} stored {were}, and is not configured: their messages \
             become dead letters. Put its file into `previous_vapid_key_files` until `redrive subscriptions keys {name}` \
             shows that it is unused"
        )
    }));
    Ok(findings)
}

/// A scrub of a pipeline's log of subscriptions, at the interval of the store's scrub.
#[derive(Clone, Debug)]
pub struct LogScrub {
    table: Subscriptions,
    dir: PathBuf,
    every: Duration,
}

impl LogScrub {
    /// `None` if there is no such log, or scrubbing is off.
    pub fn of(table: &Subscriptions, config: &Config, pipeline: &PipelineConfig) -> Option<Self> {
        let (dir, every) = (log_dir(config, pipeline)?, config.engine.scrub?);
        Some(Self { table: table.clone(), dir, every })
    }

    pub fn start(self, runtime: &Runtime) {
        runtime.spawn(async move {
            let mut turns = tokio::time::interval(self.every);
            // The first tick is immediate, and the log has just been read.
            turns.tick().await;
            loop {
                turns.tick().await;
                let Self { table, dir, .. } = self.clone();
                // A panic was already printed.
                let _ = tokio::task::spawn_blocking(move || note_damage(&table, &dir)).await;
            }
        });
    }
}

/// Checks the log, and records damage for `status`.
fn note_damage(table: &Subscriptions, dir: &Path) {
    let pipeline = table.pipeline();
    match check::check(dir) {
        Ok(found) => table.note_damage(found.map_or(0, |found| found.damaged)),
        Err(error) => tracing::warn!(pipeline, %error, "the log of subscriptions cannot be checked"),
    }
}

fn log_dir(config: &Config, pipeline: &PipelineConfig) -> Option<PathBuf> {
    (config.engine.kind == EngineKind::Embedded).then(|| config.engine.dir.join(&pipeline.name))
}

fn store(config: &Config, pipeline: &PipelineConfig) -> Result<Option<Box<dyn SubscriptionStore>>, Failed> {
    let failed = |error: EngineError| engine_failed(&error);
    match config.engine.kind {
        EngineKind::Memory => Ok(None),
        EngineKind::Embedded => {
            let file = SubscriptionFile::open(&config.engine.dir.join(&pipeline.name)).map_err(failed)?;
            Ok(Some(Box::new(file)))
        }
        EngineKind::Kafka => on_kafka(config, pipeline).map(Some),
    }
}

#[cfg(feature = "kafka")]
fn on_kafka(config: &Config, pipeline: &PipelineConfig) -> Result<Box<dyn SubscriptionStore>, Failed> {
    use super::kafka;
    let described = kafka::pipelines(config).into_iter().find(|one| one.name == pipeline.name);
    let described = described.ok_or_else(|| Failed::usage("the pipeline has no topics"))?;
    let topic =
        redrive_kafka::group::subscriptions::SubscriptionTopic::open(&kafka::cluster(config)?, &described);
    Ok(Box::new(topic.map_err(|error| engine_failed(&error))?))
}

#[cfg(not(feature = "kafka"))]
fn on_kafka(_: &Config, _: &PipelineConfig) -> Result<Box<dyn SubscriptionStore>, Failed> {
    Err(Failed::usage("this build has no Kafka engine").hint("build it with the feature `kafka`"))
}
