//! `[engine]`: where messages live.

use std::path::PathBuf;

use super::fault::Fault;
use super::reader::{Reader, Section, Set};
use super::tree::At;

pub const DIR_DEFAULT: &str = "./redrive-data";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    Memory,
    Embedded,
    Kafka,
}

impl EngineKind {
    pub const WORDS: [(&'static str, Self); 3] =
        [("memory", Self::Memory), ("embedded", Self::Embedded), ("kafka", Self::Kafka)];

    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
            Self::Kafka => "kafka",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    pub kind: EngineKind,
    /// The directory of the embedded engine.
    pub dir: PathBuf,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { kind: EngineKind::Embedded, dir: DIR_DEFAULT.into() }
    }
}

/// The keys that mean something to the Kafka engine only.
const KAFKA_KEYS: [&str; 7] = ["brokers", "group", "member", "start", "topics", "state_dir", "kafka"];

impl EngineConfig {
    pub(super) fn read(reader: &mut Reader, section: &Section<'_>) -> Self {
        reader.unknown_keys(section);
        let kind = reader.one_of(section, "kind", &EngineKind::WORDS);
        let dir = reader.text(section, "dir");
        kafka_keys(reader, section);
        if let Some(Set { at, .. }) = dir.as_ref().filter(|dir| dir.value.trim().is_empty()) {
            let fix = format!("dir = \"{DIR_DEFAULT}\"");
            let fault = Fault::value("dir", "`dir = \"\"` is not a directory", fix, at.clone());
            reader.fault(section, fault);
        }
        let given = kind.as_ref().map_or(EngineKind::Embedded, |kind| kind.value);
        if given == EngineKind::Kafka {
            let at = kind.map_or_else(Vec::new, |kind| vec![kind.at]);
            let problem = "`kind = \"kafka\"`: this build has no Kafka engine yet; use `embedded`";
            reader.fault(section, Fault::line("kind", problem, "kind = \"embedded\"", at));
        } else {
            let strangers: Vec<&str> =
                KAFKA_KEYS.into_iter().filter(|key| section.get(key).is_some()).collect();
            for key in strangers {
                let at: Vec<At> = section.at(key).into_iter().collect();
                let problem =
                    format!("`{key}` means something to the kafka engine only, and this is {}", given.name());
                reader.fault(section, Fault::line(key, problem, format!("remove `{key}`"), at));
            }
        }
        let dir = dir.map_or_else(|| DIR_DEFAULT.to_owned(), |dir| dir.value);
        Self { kind: given, dir: dir.into() }
    }
}

/// Read, so that their faults are shown with all others; nothing uses them before there is a Kafka engine.
fn kafka_keys(reader: &mut Reader, section: &Section<'_>) {
    reader.texts(section, "brokers");
    reader.text(section, "group");
    reader.text(section, "member");
    reader.one_of(section, "start", &[("earliest", ()), ("latest", ())]);
    reader.one_of(section, "topics", &[("verify", ()), ("create", ())]);
    reader.text(section, "state_dir");
    reader.table(section, "kafka");
}
