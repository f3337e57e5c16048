//! The keys of `[engine]` that only the Kafka engine uses, and the table passed on to its client.

use std::path::{Path, PathBuf};

use super::fault::Fault;
use super::named::Named;
use super::reader::{Section, Set, SettingReader};
use super::secrets;
use super::tree::{At, Data};
use super::words::quoted;

/// One cluster, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaConfig {
    pub brokers: Vec<String>,
    pub group: String,
    /// Static membership.
    pub member: Option<String>,
    /// Where a group without committed offsets starts; never guessed.
    pub start: Option<StartAt>,
    pub topics: MissingTopics,
    /// The part of the work that this process does.
    pub only: Part,
    pub passed_on: Vec<PassedOn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    Earliest,
    Latest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingTopics {
    Verify,
    Create,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Everything,
    Source,
    Tiers,
}

impl StartAt {
    pub(super) const WORDS: [(&'static str, Self); 2] =
        [(Self::Earliest.name(), Self::Earliest), (Self::Latest.name(), Self::Latest)];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
        }
    }
}

impl MissingTopics {
    pub(super) const WORDS: [(&'static str, Self); 2] =
        [(Self::Verify.name(), Self::Verify), (Self::Create.name(), Self::Create)];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Verify => "verify",
            Self::Create => "create",
        }
    }
}

impl Part {
    pub(super) const WORDS: [(&'static str, Self); 3] = [
        (Self::Everything.name(), Self::Everything),
        (Self::Source.name(), Self::Source),
        (Self::Tiers.name(), Self::Tiers),
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Source => "source",
            Self::Tiers => "tiers",
        }
    }
}

/// A setting for the client library. Its value may be a secret, so it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PassedOn {
    pub key: String,
    pub value: PassedValue,
    pub(super) at: At,
}

#[derive(Clone, PartialEq, Eq)]
#[expect(missing_debug_implementations, reason = "a value may be a secret")]
pub enum PassedValue {
    Plain(String),
    /// `KEY_file`: this file holds the value.
    File(PathBuf),
    /// `KEY_env`: this variable holds the value.
    Variable(String),
}

impl std::fmt::Debug for PassedOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassedOn").field("key", &self.key).finish_non_exhaustive()
    }
}

impl PassedOn {
    /// Reads the value from its place; or returns what is wrong with the place.
    pub fn read(&self) -> Result<String, String> {
        match &self.value {
            PassedValue::Plain(value) => Ok(value.clone()),
            PassedValue::File(path) => {
                let secret = redrive_sinks::Secret::read(path).map_err(|error| error.to_string())?;
                Ok(secret.expose().to_owned())
            }
            PassedValue::Variable(name) => {
                std::env::var(name).map_err(|_| format!("the variable {name} is not set"))
            }
        }
    }
}

impl KafkaConfig {
    /// All effective values, as TOML, except those passed on.
    pub(super) fn values(&self, dir: &Path) -> impl Iterator<Item = (&'static str, String)> {
        let brokers: Vec<String> = self.brokers.iter().map(|broker| quoted(broker)).collect();
        let values = [
            ("brokers", Some(format!("[{}]", brokers.join(", ")))),
            ("group", Some(quoted(&self.group))),
            ("member", self.member.as_deref().map(quoted)),
            ("start", self.start.map(|start| quoted(start.name()))),
            ("topics", Some(quoted(self.topics.name()))),
            ("state_dir", Some(quoted(&dir.display().to_string()))),
            ("only", Some(quoted(self.only.name()))),
        ];
        values.into_iter().filter_map(|(key, value)| value.map(|value| (key, value)))
    }

    /// Reads the keys. A missing key is a fault only if the engine is `kafka`.
    pub(super) fn read(reader: &mut SettingReader, section: &Section<'_>, meant: bool) -> Self {
        let brokers = reader.texts(section, "brokers");
        let group = reader.text(section, "group");
        let member = reader.text(section, "member").map(|set| set.value);
        let start = reader.one_of(section, "start", &StartAt::WORDS).map(|set| set.value);
        let topics = reader.one_of(section, "topics", &MissingTopics::WORDS);
        let only = reader.one_of(section, "only", &Part::WORDS);
        let passed_on = passed_on(reader, section);
        if meant {
            check_brokers(reader, section, brokers.as_ref());
            check_group(reader, section, group.as_ref());
            if member.as_deref() == Some("") {
                let name = section.name("member");
                let problem = format!("`{name} = \"\"` is empty: give each process its own name");
                let fix = format!("{name} = \"redrive-0\", or remove `{name}`");
                reader.fault(
                    section,
                    Fault::line(name, problem, fix, section.at("member").into_iter().collect()),
                );
            }
            let looked_at = passed_on.clone();
            reader.named.push(Named::new(Some("engine"), move || passed_on_faults(&looked_at)));
        }
        let brokers = brokers.map_or_else(Vec::new, |set| set.value);
        Self {
            brokers: brokers.into_iter().map(|broker| broker.value).collect(),
            group: group.map_or_else(String::new, |set| set.value),
            member,
            start,
            topics: topics.map_or(MissingTopics::Verify, |set| set.value),
            only: only.map_or(Part::Everything, |set| set.value),
            passed_on,
        }
    }
}

fn check_brokers(reader: &mut SettingReader, section: &Section<'_>, brokers: Option<&Set<Vec<Set<String>>>>) {
    let fix = "brokers = [\"localhost:9092\"]";
    let Some(brokers) = brokers else {
        if section.get("brokers").is_none() {
            let at = section.at("kind").into_iter().collect();
            reader.fault(
                section,
                Fault::line("brokers", "`kind` is kafka, and there are no `brokers`", fix, at),
            );
        }
        return;
    };
    if brokers.value.is_empty() {
        let problem = "`brokers = []` is empty: list at least one broker";
        reader.fault(section, Fault::value("brokers", problem, fix, brokers.at.clone()));
    }
    for broker in &brokers.value {
        let port = broker.value.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        if !matches!(port, Some((host, Ok(_))) if !host.is_empty() && !host.contains("//")) {
            let problem = format!("`{}` is not a broker", broker.value);
            reader.fault(
                section,
                Fault::value("brokers", problem, "write it like host:9092", broker.at.clone()),
            );
        }
    }
}

fn check_group(reader: &mut SettingReader, section: &Section<'_>, group: Option<&Set<String>>) {
    let fix = "group = \"orders-delivery\"";
    match group {
        None if section.get("group").is_none() => {
            let at = section.at("kind").into_iter().collect();
            reader.fault(section, Fault::line("group", "`kind` is kafka, and there is no `group`", fix, at));
        }
        Some(group) if group.value.trim().is_empty() => {
            reader
                .fault(section, Fault::value("group", "`group = \"\"` is not a name", fix, group.at.clone()));
        }
        _ => {}
    }
}

fn passed_on(reader: &mut SettingReader, section: &Section<'_>) -> Vec<PassedOn> {
    let Some(table) = reader.table(section, "kafka") else { return Vec::new() };
    let mut passed_on = Vec::new();
    flatten(reader, &table, table.table, "", &mut passed_on);
    passed_on
}

/// `sasl.mechanism = "…"` without quotes is a nested table in TOML; treat it as the same setting.
fn flatten(
    reader: &mut SettingReader,
    section: &Section<'_>,
    table: &super::tree::TreeTable,
    prefix: &str,
    out: &mut Vec<PassedOn>,
) {
    for entry in &table.entries {
        let name = format!("{prefix}{}", entry.key);
        let value = match &entry.node.data {
            Data::Table(below) => {
                flatten(reader, section, below, &format!("{name}."), out);
                continue;
            }
            Data::Text(text) => text.clone(),
            Data::Whole(number) => number.to_string(),
            Data::Number(number) => number.to_string(),
            Data::Switch(on) => on.to_string(),
            _ => {
                let problem = format!("`kafka.{name}` must be a text, a number, true or false");
                let fault = Fault::line(
                    format!("kafka.{name}"),
                    problem,
                    format!("remove `kafka.{name}`"),
                    vec![entry.key_at.clone()],
                );
                reader.fault(section, fault);
                continue;
            }
        };
        let (key, value) = if let Some(key) = name.strip_suffix("_file") {
            if is_secret(key) {
                let (full, path) = (format!("kafka.{name}"), PathBuf::from(&value));
                let at = entry.key_at.clone();
                let look = move || secrets::exposed(&full, &path, &at).into_iter().collect();
                reader.named.push(Named::new(section.part_name(), look));
            }
            (key.to_owned(), PassedValue::File(value.into()))
        } else if let Some(key) = name.strip_suffix("_env") {
            (key.to_owned(), PassedValue::Variable(value))
        } else {
            if is_secret(&name) {
                let problem = format!("`kafka.{name}` puts a secret into the configuration");
                let fix = format!("\"{name}_file\" = \"/etc/redrive/…\", or \"{name}_env\" = \"NAME\"");
                let fault = Fault::line(format!("kafka.{name}"), problem, fix, vec![entry.key_at.clone()]);
                reader.fault(section, fault.warning());
            }
            (name, PassedValue::Plain(value))
        };
        out.push(PassedOn { key, value, at: entry.key_at.clone() });
    }
}

fn is_secret(key: &str) -> bool {
    ["password", "secret", "ssl.key.pem", "sasl.oauthbearer.config"].iter().any(|part| key.contains(part))
}

/// Faults in the settings passed on, after reading their files.
#[cfg(feature = "kafka")]
fn passed_on_faults(passed_on: &[PassedOn]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for passed in passed_on {
        let key = format!("kafka.{}", passed.key);
        let fault = match passed.read() {
            Err(problem) => Some((format!("`{key}` cannot be read: {problem}"), String::new())),
            Ok(value) => redrive_kafka::client::fault_of(&passed.key, &value).map(|refusal| {
                let problem = format!("`{key}` cannot be passed on: {}", refusal.problem);
                (problem, if refusal.fix.is_empty() { format!("remove `{key}`") } else { refusal.fix })
            }),
        };
        faults.extend(fault.map(|(problem, fix)| Fault::line(key, problem, fix, vec![passed.at.clone()])));
    }
    faults
}

#[cfg(not(feature = "kafka"))]
fn passed_on_faults(_: &[PassedOn]) -> Vec<Fault> {
    Vec::new()
}
