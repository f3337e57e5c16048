//! The subscriptions of a push pipeline: described before the stores are open, loaded afterwards.

use redrive::engine::EngineError;
use redrive::subscriptions::file::SubscriptionFile;
use redrive::subscriptions::{SubscriptionStore, Subscriptions};

use super::engine_failed::engine_failed;
use crate::config::{Config, EngineKind, PipelineConfig};
use crate::exit::Failed;

/// The table of a pipeline whose sink has subscriptions, not loaded yet.
pub fn table(pipeline: &PipelineConfig) -> Option<Subscriptions> {
    let settings = pipeline.sink.settings.subscriptions()?;
    Some(Subscriptions::new(&pipeline.name, settings.purge))
}

/// Loads a table from where the pipeline's engine has its data, which is open by now. Says what was wrong with it.
pub fn open(
    table: &Subscriptions,
    config: &Config,
    pipeline: &PipelineConfig,
) -> Result<Vec<String>, Failed> {
    let Some(store) = store(config, pipeline)? else { return Ok(Vec::new()) };
    table.open(store).map_err(|error| engine_failed(&error))
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
