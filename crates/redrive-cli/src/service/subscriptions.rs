//! The subscriptions of a push pipeline: described before the stores are open, loaded afterwards.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use redrive::engine::EngineError;
use redrive::subscriptions::file::SubscriptionFile;
use redrive::subscriptions::{SubscriptionStore, Subscriptions};
use redrive_sinks::Secret;

use super::engine_failed::engine_failed;
use crate::config::sinks::hash_key;
use crate::config::sinks::registry::SubscriptionParts;
use crate::config::{Config, EngineKind, PipelineConfig};
use crate::exit::{Exit, Failed};

/// In the directory of the pipeline's store.
const KEY_FILE: &str = "hash.key";

/// A table that is not loaded yet.
#[derive(Debug)]
pub struct Opening {
    pub parts: SubscriptionParts,
    /// Where the key of the hashes is to be written, if it was made here.
    new_key: Option<PathBuf>,
}

impl Opening {
    /// For a pipeline whose sink has subscriptions. Reads the key of its hashes, and changes nothing on disk.
    pub fn of(config: &Config, pipeline: &PipelineConfig) -> Result<Option<Self>, String> {
        let Some(settings) = pipeline.sink.settings.subscriptions() else { return Ok(None) };
        let table = Subscriptions::new(&pipeline.name, settings.purge);
        let given = hash_key(settings.hash_key_file).map_err(|fault| fault.to_string())?;
        let own = config.engine.dir.join(&pipeline.name).join(KEY_FILE);
        let kept = given.is_none() && config.engine.kind == EngineKind::Embedded && own.exists();
        let kept = kept.then(|| Secret::read(&own)).transpose().map_err(|error| error.to_string())?;
        let is_new = given.is_none() && kept.is_none();
        let new = || Secret::generate().ok_or("the system gives no random numbers for the key of hashes");
        let hash_key = given.or(kept).map_or_else(new, Ok)?;
        let new_key = (is_new && config.engine.kind == EngineKind::Embedded).then_some(own);
        Ok(Some(Self { parts: SubscriptionParts { table, hash_key }, new_key }))
    }

    /// Loads the table from where the pipeline's engine has its data, which is open by now. Says what was wrong with it.
    pub fn open(self, config: &Config, pipeline: &PipelineConfig) -> Result<Vec<String>, Failed> {
        if let Some(path) = &self.new_key {
            let written = write_key(path, &self.parts.hash_key);
            written.map_err(|error| Failed::new(Exit::Storage, format!("{}: {error}", path.display())))?;
        }
        let store = store(config, pipeline)?;
        let Some(store) = store else { return Ok(Vec::new()) };
        self.parts.table.open(store).map_err(|error| engine_failed(&error))
    }
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

/// For this user alone: whoever has it can try out which endpoint a hash belongs to.
fn write_key(path: &Path, key: &Secret) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", key.expose())?;
    file.sync_all()?;
    path.parent().map_or(Ok(()), |dir| std::fs::File::open(dir)?.sync_all())
}
