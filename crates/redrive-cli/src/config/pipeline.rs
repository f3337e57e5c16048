//! `[[pipeline]]`: one source with its sink, policy and dead letters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::name::{self, NameFault};
use redrive::letters::Redaction;
use redrive::{AfterDead, DeliveryOrder};
use redrive_core::profiles;
use redrive_core::{
    BreakerSettings, GroupRule, GuardSettings, Pick, Policy, PolicySettings, Ratio, duration,
};

use super::auto_replay::{self, AutoReplayConfig};
use super::engine::{EngineConfig, EngineKind};
use super::fault::Fault;
use super::groups;
use super::kafka::{KafkaConfig, Part};
use super::named::Named;
use super::policy;
use super::protection;
use super::reader::{Section, SettingReader};
use super::sinks::SinkConfig;
use super::sinks::section::{shared_hashes, sink_faults, sink_section};
use super::tree::{At, Data, TreeTable};
use super::words::{AFTER_DEAD, ORDERINGS, after_dead_name, ordering_name, quoted};

/// How long an id is remembered by default.
pub const DEDUP_DEFAULT: Duration = Duration::from_hours(24);

/// A pipeline with every value resolved.
#[derive(Clone, Debug)]
pub struct PipelineConfig {
    pub name: String,
    /// The topic; only the Kafka engine has one.
    pub source: Option<String>,
    /// Where the stable id comes from; `None` if it is given or generated at ingest.
    pub id: Option<Pick>,
    pub tenant: Option<Pick>,
    /// The validated policy.
    pub policy: Policy,
    /// The explicit settings of the policy, without the profile's.
    pub settings: PolicySettings,
    pub ordering: DeliveryOrder,
    pub after_dead: AfterDead,
    /// The number of waiting messages from which ingest refuses more; 0 means no limit.
    pub max_pending: u64,
    /// How long an id is remembered; `None` if off.
    pub dedup: Option<Duration>,
    /// How long the receiver remembers ids; `None` if not set.
    pub ledger_horizon: Option<Duration>,
    pub breaker: BreakerSettings,
    pub guard: GuardSettings,
    pub auto_replay: AutoReplayConfig,
    /// The user's rules for groups of letters.
    pub groups: Vec<GroupRule>,
    /// What to hide of messages and letters.
    pub redaction: Redaction,
    /// Open letters that died longer ago are discarded; `None` means never.
    pub letter_retention: Option<Duration>,
    /// The share of successes logged at `info`.
    pub log_delivered: Ratio,
    pub sink: SinkConfig,
    /// Where each given value came from, by dotted key.
    pub(super) given: BTreeMap<String, At>,
}

pub(super) struct FoundPipeline {
    pub(super) config: Option<PipelineConfig>,
    /// Its name and location, to check for duplicates.
    pub(super) name: Option<(String, At)>,
    pub(super) source: Option<String>,
    /// Its source topic.
    pub(super) topic: Option<String>,
}

impl PipelineConfig {
    pub(super) fn read(
        reader: &mut SettingReader,
        (section, at): (&Section<'_>, &At),
        (index, engine): (usize, &EngineConfig),
    ) -> FoundPipeline {
        let name = reader.text(section, "name");
        let source = reader.text(section, "source");
        let named = name.clone().or_else(|| source.clone());
        let part = match &named {
            Some(named) => format!("pipeline `{}`", named.value),
            None => format!("pipeline {}", index + 1),
        };
        let section = &section.clone().part(part);
        let errors = reader.faults.len();
        reader.unknown_keys(section);
        match &named {
            Some(named) => check_name(reader, section, &named.value, &named.at),
            None if section.get("name").is_none() => {
                let fix = "name = \"orders\"";
                let fault = Fault::line("name", "it has no `name`", format!("add {fix}"), vec![at.clone()]);
                reader.fault(section, fault);
            }
            None => {}
        }
        if let (Some(source), false) = (&source, engine.kind == EngineKind::Kafka) {
            let kind = engine.kind.name();
            let problem = format!("`source` applies to the kafka engine only; `engine.kind` is {kind}");
            let fix = match (&name, name::check(&source.value)) {
                (None, Ok(())) => format!("name = \"{}\" instead of `source`", source.value),
                (None, Err(_)) => "name = \"orders\" instead of `source`".to_owned(),
                (Some(_), _) => "remove `source`".to_owned(),
            };
            let places = section.at("source").into_iter().collect();
            reader.fault(section, Fault::line("source", problem, fix, places));
        }

        let sink_section = sink_section(reader, section, at);
        let sink = sink_section.as_ref().map(|(kind, sink)| (kind.name, (kind.read)(reader, sink)));
        let (settings, policy) = policy::read(reader, section, sink_section.as_ref().map(|(_, sink)| sink));
        let mut given = BTreeMap::new();
        collect(section.table, "", &mut given);
        if let Some((kind, read)) = &sink {
            // A faulty policy has no reliable timeout.
            let timeout = policy.as_ref().map(Policy::timeout);
            let (kind, settings, given) = (*kind, Arc::clone(&read.settings), given.clone());
            let is_complete = read.is_complete;
            let look = move || sink_faults(&settings.check(timeout), kind, is_complete, &given);
            reader.named.push(Named::new(section.part_name(), look));
        }
        if let Some((kind, read)) = &sink {
            shared_hashes(reader, section, kind, &*read.settings, engine.kind);
        }
        let sink = sink.filter(|(_, read)| read.is_complete);
        let sink = sink.map(|(kind, read)| SinkConfig { kind, settings: read.settings });
        let (ordering, after_dead) = order(reader, section);
        only(reader, section, ordering, engine.kafka.as_ref());
        let topic = (engine.kind == EngineKind::Kafka)
            .then(|| source.as_ref().or(named.as_ref()).map(|topic| topic.value.clone()))
            .flatten();
        let id = reader.pick(section, "id");
        let tenant = reader.pick(section, "tenant");
        let max_pending = reader.whole(section, "max_pending").map_or(0, |set| set.value);
        let dedup = dedup(reader, section);
        let ledger_horizon = reader.duration(section, "ledger_horizon").map(|set| set.value);
        // An unknown profile is reported as a fault of the policy.
        let profile = profiles::find(settings.profile.as_deref().unwrap_or(profiles::DEFAULT));
        let breaker = protection::breaker(reader, section, profile.unwrap_or(&profiles::ALL[0]));
        let guard = protection::guard(reader, section);
        let auto_replay = auto_replay::read(reader, section);
        let groups = groups::read(reader, section);
        let receivers = sink.as_ref().map_or(&[][..], |sink| sink.settings.receivers());
        let redaction = redaction(reader, section, receivers);
        let letter_retention = letter_retention(reader, section);
        let log_delivered = reader.share(section, "log_delivered").map_or(Ratio::ZERO, |set| set.value);

        let found_errors =
            reader.faults[errors..].iter().any(|fault| fault.severity == super::fault::Severity::Error);
        let config = match (&named, policy, sink) {
            (Some(named), Some(policy), Some(sink)) if !found_errors => Some(Self {
                name: named.value.clone(),
                source: topic.clone(),
                id,
                tenant,
                policy,
                settings,
                ordering,
                after_dead,
                max_pending,
                dedup,
                ledger_horizon,
                breaker,
                guard,
                auto_replay,
                groups,
                redaction,
                letter_retention,
                log_delivered,
                sink,
                given,
            }),
            _ => None,
        };
        FoundPipeline {
            config,
            name: named.map(|named| (named.value, named.at)),
            source: source.filter(|_| name.is_none()).map(|source| source.value),
            topic,
        }
    }
}

impl PipelineConfig {
    /// All effective values of the pipeline itself, as TOML; those of its policy and its subtables are shown elsewhere.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let rules: Vec<String> = self.redaction.rules().iter().map(|rule| quoted(rule)).collect();
        let values = [
            ("name", Some(quoted(&self.name))),
            ("source", self.source.as_deref().map(quoted)),
            ("id", self.id.as_ref().map(|pick| quoted(&pick.to_string()))),
            ("tenant", self.tenant.as_ref().map(|pick| quoted(&pick.to_string()))),
            ("ordering", Some(quoted(ordering_name(self.ordering)))),
            ("after_dead", Some(quoted(after_dead_name(self.after_dead)))),
            ("max_pending", Some(self.max_pending.to_string())),
            ("dedup", Some(quoted(&self.dedup.map_or_else(|| "off".to_owned(), duration::print)))),
            ("ledger_horizon", self.ledger_horizon.map(|horizon| quoted(&duration::print(horizon)))),
            ("letter_retention", self.letter_retention.map(|keep| quoted(&duration::print(keep)))),
            ("redact", (!rules.is_empty()).then(|| format!("[{}]", rules.join(", ")))),
            ("log_delivered", Some(quoted(&self.log_delivered.to_string()))),
        ];
        values.into_iter().filter_map(|(key, value)| value.map(|value| (key, value))).collect()
    }
}

/// Reports an unusable name with the same text as the library's `build()`.
fn check_name(reader: &mut SettingReader, section: &Section<'_>, name: &str, at: &At) {
    if let Err(fault) = name::check(name) {
        let problem = format!("`name` is {name:?}: {}", fault.problem());
        // The location may be that of `source`, which serves as the name if there is none.
        let fix = format!("name = \"{}\"", usable_name(name, fault));
        reader.fault(section, Fault::value("name", problem, fix, at.clone()));
    }
}

/// The closest usable name.
fn usable_name(name: &str, fault: NameFault) -> String {
    if let NameFault::Taken(_) = fault {
        return format!("{name}-pipeline");
    }
    let usable = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let cleaned: String = name.trim().chars().map(|c| if usable(c) { c } else { '-' }).take(100).collect();
    let cleaned = cleaned.trim_matches(['.', '-']);
    if name::check(cleaned).is_ok() { cleaned.to_owned() } else { "orders".to_owned() }
}

fn order(reader: &mut SettingReader, section: &Section<'_>) -> (DeliveryOrder, AfterDead) {
    let ordering =
        reader.one_of(section, "ordering", &ORDERINGS).map_or(DeliveryOrder::None, |set| set.value);
    let after_dead = reader.one_of(section, "after_dead", &AFTER_DEAD);
    let answer = after_dead.as_ref().map_or(AfterDead::Continue, |set| set.value);
    if answer == AfterDead::BlockKey && ordering == DeliveryOrder::None {
        let problem = "`after_dead = \"block_key\"` has no effect without `ordering = \"key\"`";
        let fix = "ordering = \"key\", or remove `after_dead`";
        let at = after_dead.map(|set| set.at).into_iter().collect();
        reader.fault(section, Fault::line("after_dead", problem, fix, at));
    }
    (ordering, answer)
}

/// Reports `only` with ordering by key: one process must hold the key line for both fresh messages and retries.
fn only(
    reader: &mut SettingReader,
    section: &Section<'_>,
    ordering: DeliveryOrder,
    kafka: Option<&KafkaConfig>,
) {
    let Some(part) = kafka.map(|kafka| kafka.only).filter(|part| *part != Part::Everything) else { return };
    if ordering == DeliveryOrder::Key {
        let problem = format!(
            "`ordering` is key, and this process takes on only the {}: no process would see which message waits for which (or \
             run it without --only)",
            part.name()
        );
        let fix = "ordering = \"none\"";
        let at = section.at("ordering").into_iter().collect();
        reader.fault(section, Fault::line("ordering", problem, fix, at));
    }
}

/// After how long open letters are discarded. At least a day: a typo must not discard the letters of last night.
fn letter_retention(reader: &mut SettingReader, section: &Section<'_>) -> Option<Duration> {
    reader.duration(section, "letter_retention").map(|set| set.value)
}

/// Values to hide: JSON pointers, and headers by name; and the receivers of a push sink, unless the list is empty.
fn redaction(reader: &mut SettingReader, section: &Section<'_>, receivers: &[&str]) -> Redaction {
    let Some(rules) = reader.texts(section, "redact") else { return Redaction::of_receivers(receivers) };
    let mut redaction = Redaction::default();
    for rule in rules.value {
        if !redaction.add(&rule.value) {
            let name = section.name("redact");
            let problem =
                format!("`{name}` has {:?}, which is not a valid location in a message", rule.value);
            reader.fault(
                section,
                Fault::value(name, problem, "write it like /customer/email or header:x-user", rule.at),
            );
        }
    }
    if !redaction.is_empty() {
        receivers.iter().for_each(|rule| {
            redaction.add(rule);
        });
    }
    redaction
}

fn dedup(reader: &mut SettingReader, section: &Section<'_>) -> Option<Duration> {
    reader.duration_or_off(section, "dedup").map_or(Some(DEDUP_DEFAULT), |set| set.value)
}

/// Collects every given value by its dotted key.
fn collect(table: &TreeTable, prefix: &str, into: &mut BTreeMap<String, At>) {
    for entry in &table.entries {
        let key = format!("{prefix}{}", entry.key);
        match &entry.node.data {
            Data::Table(below) => collect(below, &format!("{key}."), into),
            _ => {
                into.insert(key, entry.node.at.clone());
            }
        }
    }
}
