//! `[engine]`: where messages are stored.

use std::path::PathBuf;
use std::time::Duration;

use redrive_core::duration;

use super::declared::{BEFORE_SINKS, SettingTable};
use super::fault::Fault;
use super::kafka::KafkaConfig;
use super::reader::{Section, Set, SettingReader};
use super::tree::At;
use super::words::quoted;

pub const DIR_DEFAULT: &str = "./redrive-data";
pub const SCRUB_DEFAULT: Duration = Duration::from_hours(7 * 24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    Memory,
    Embedded,
    Kafka,
}

impl EngineKind {
    pub const WORDS: [(&'static str, Self); 3] = [
        (Self::Memory.name(), Self::Memory),
        (Self::Embedded.name(), Self::Embedded),
        (Self::Kafka.name(), Self::Kafka),
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
            Self::Kafka => "kafka",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    pub kind: EngineKind,
    /// The directory of the embedded engine; with Kafka it holds a cache, the replay jobs and records that Kafka
    /// refused.
    pub dir: PathBuf,
    /// How often the embedded engine scrubs all its data.
    pub scrub: Option<Duration>,
    /// Set if the engine is Kafka.
    pub kafka: Option<KafkaConfig>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { kind: EngineKind::Embedded, dir: DIR_DEFAULT.into(), scrub: Some(SCRUB_DEFAULT), kafka: None }
    }
}

impl EngineConfig {
    pub(super) fn read(reader: &mut SettingReader, section: &Section<'_>) -> Self {
        reader.unknown_keys(section);
        let kind = reader.one_of(section, "kind", &EngineKind::WORDS);
        let key = if section.get("state_dir").is_some() { "state_dir" } else { "dir" };
        let dir = reader.text(section, key);
        let given = kind.as_ref().map_or(EngineKind::Embedded, |kind| kind.value);
        let kafka = KafkaConfig::read(reader, section, given == EngineKind::Kafka);
        if let Some(Set { at, .. }) = dir.as_ref().filter(|dir| dir.value.trim().is_empty()) {
            let fix = format!("{key} = \"{DIR_DEFAULT}\"");
            let fault = Fault::value(key, format!("`{key} = \"\"` is not a directory"), fix, at.clone());
            reader.fault(section, fault);
        }
        if given == EngineKind::Kafka && !cfg!(feature = "kafka") {
            let at = kind.map_or_else(Vec::new, |kind| vec![kind.at]);
            let problem =
                "`kind = \"kafka\"`: this build has no Kafka engine; build it with the feature `kafka`";
            reader.fault(section, Fault::line("kind", problem, "kind = \"embedded\"", at));
        }
        let strangers = of_one_engine()
            .into_iter()
            .filter(|(key, engine)| *engine != given.name() && section.get(key).is_some());
        for (key, engine) in strangers {
            let at: Vec<At> = section.at(key).into_iter().collect();
            let problem =
                format!("`{key}` applies to the {engine} engine only; `engine.kind` is {}", given.name());
            reader.fault(section, Fault::line(key, problem, format!("remove `{key}`"), at));
        }
        let dir = dir.map_or_else(|| DIR_DEFAULT.to_owned(), |dir| dir.value);
        let scrub = scrub(reader, section, given);
        Self { kind: given, dir: dir.into(), scrub, kafka: (given == EngineKind::Kafka).then_some(kafka) }
    }
}

impl EngineConfig {
    /// All effective values, as TOML, except those passed on to the Kafka client.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = vec![("kind", quoted(self.kind.name()))];
        if self.kind == EngineKind::Embedded {
            let scrub = self.scrub.map_or_else(|| "off".to_owned(), duration::print);
            values.push(("dir", quoted(&self.dir.display().to_string())));
            values.push(("scrub", quoted(&scrub)));
        }
        if let Some(kafka) = &self.kafka {
            values.extend(kafka.values(&self.dir));
        }
        values
    }
}

/// The keys of `[engine]` that belong to one kind of engine, with its name: settings declared for it, and its table.
fn of_one_engine() -> Vec<(&'static str, &'static str)> {
    let of_table = |table: &'static SettingTable| {
        let below = table.path.strip_prefix("engine.").map(|name| (name, name));
        let settings = table.settings.iter().filter(|_| table.path == "engine");
        settings.filter_map(|setting| Some((setting.key, setting.only?))).chain(below)
    };
    BEFORE_SINKS.iter().copied().flatten().flat_map(of_table).collect()
}

fn scrub(reader: &mut SettingReader, section: &Section<'_>, kind: EngineKind) -> Option<Duration> {
    if kind != EngineKind::Embedded && section.at("scrub").is_some() {
        return None;
    }
    reader.duration_or_off(section, "scrub").map_or(Some(SCRUB_DEFAULT), |set| set.value)
}
