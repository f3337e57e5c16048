//! `[pipeline.sink.fcm]`: push through Firebase Cloud Messaging.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive::Sink;
use redrive_core::rate;
use redrive_sinks::fcm::classes::ROWS;
use redrive_sinks::fcm::options::{CONNECTIONS, CONNECTIONS_MAX, GOOGLE};
use redrive_sinks::{FcmOptions, FcmSink, SinkFault};

use super::super::declared::Form::{Address, File, Open, Rate, Text, Whole};
use super::super::declared::{Header, Setting, SettingTable};
use super::super::fault::Fault;
use super::super::reader::{Section, SettingReader};
use super::super::words::quoted;
use super::common::{CA_FILE, CONCURRENCY, HASH_KEY_FILE, ON_PURGED, PURGE, TIMEOUT};
use super::kind::{ReachableAt, SinkKind, SinkParts, SinkRead, SinkSettings, SubscriptionSettings};
use super::push::{self, PushSettings};

pub(super) const KIND: SinkKind = SinkKind { name: "fcm", tables: TABLES, read };

#[rustfmt::skip] // one line for each setting
const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "pipeline.sink.fcm",
        header: Header::Example,
        about: "instead of [pipeline.sink.webhook]: pushes through Firebase; docs/guide/push.md has the form of a message",
        settings: &[
            Setting::example("service_account_file", File, r#""/etc/redrive/fcm-account.json""#, "the JSON file from the Firebase console"),
            Setting::example("rate", Rate(0.0, f64::MAX), r#""600k/m""#, "maximum request rate, shared by the members of a Kafka group; refused requests also count against the quota; default: no limit"),
            Setting::default("url", Address, r#""https://fcm.googleapis.com""#, "the server"),
            Setting::default("connections", Whole(1, CONNECTIONS_MAX as u64), "2", "maximum number of connections; each carries as many streams as the server allows"),
            CA_FILE,
            HASH_KEY_FILE,
            PURGE,
            ON_PURGED,
            TIMEOUT,
            CONCURRENCY,
            Setting::example("classes", Open(&Text), r#"{ "QUOTA_EXCEEDED" = "transient" }"#, "overrides rows of the class table: an error code, \"429\", \"5xx\", \"timeout\" … = ok or a class"),
        ],
    },
];

#[derive(Clone, Debug)]
pub struct FcmConfig {
    pub service_account_file: PathBuf,
    /// As written; already validated.
    pub rate: Option<String>,
    pub url: String,
    pub connections: Option<u32>,
    pub push: PushSettings,
}

impl FcmConfig {
    fn options(&self) -> Result<FcmOptions, Vec<SinkFault>> {
        let mut options = FcmOptions::new(&self.service_account_file);
        options.url.clone_from(&self.url);
        options.rate = self.rate.as_deref().and_then(|text| rate::parse(text).ok());
        options.connections = self.connections.unwrap_or(CONNECTIONS);
        options.ca_file.clone_from(&self.push.ca_file);
        options.classes = self.push.class_table(ROWS)?;
        options.hash_key = self.push.hash_key()?;
        Ok(options)
    }
}

fn read(reader: &mut SettingReader, section: &Section<'_>) -> SinkRead {
    reader.unknown_keys(section);
    let account = push::required(reader, section, "service_account_file", "/etc/redrive/fcm-account.json");
    let is_complete = account.is_some();
    let service_account_file = PathBuf::from(account.unwrap_or_default());
    push::secret_file(reader, section, "service_account_file", &service_account_file);
    let settings = FcmConfig {
        service_account_file,
        rate: paced(reader, section),
        url: reader.text(section, "url").map_or_else(|| GOOGLE.to_owned(), |set| set.value),
        connections: reader.count(section, "connections"),
        push: PushSettings::read(reader, section),
    };
    SinkRead { settings: Arc::new(settings), is_complete }
}

fn paced(reader: &mut SettingReader, section: &Section<'_>) -> Option<String> {
    let set = reader.text(section, "rate")?;
    if let Err(wrong) = rate::parse(&set.value) {
        let name = section.name("rate");
        let fix = format!("{name} = \"600k/m\"");
        reader.fault(section, Fault::value(&name, format!("`{name}`: {wrong}"), fix, set.at));
        return None;
    }
    Some(set.value)
}

impl SinkSettings for FcmConfig {
    fn check(&self, _timeout: Option<Duration>) -> Vec<SinkFault> {
        self.options().map_or_else(|faults| faults, |options| options.check())
    }

    fn build(&self, parts: &SinkParts) -> Result<Arc<dyn Sink>, Vec<SinkFault>> {
        let mut options = FcmOptions { timeout: parts.timeout, ..self.options()? };
        options.hash_key = options.hash_key.or_else(|| parts.hash_key.clone());
        options.other_members.clone_from(&parts.other_members);
        if let Some(table) = &parts.subscriptions {
            options.subscriptions = table.clone();
        }
        Ok(Arc::new(FcmSink::build(options).map_err(|fault| vec![fault])?))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = vec![("service_account_file", push::shown(&self.service_account_file))];
        values.extend(self.rate.iter().map(|rate| ("rate", quoted(rate))));
        values.push(("url", quoted(&self.url)));
        values.push(("connections", self.connections.unwrap_or(CONNECTIONS).to_string()));
        values.extend(self.push.values());
        values
    }

    fn subscriptions(&self) -> Option<SubscriptionSettings<'_>> {
        Some(self.push.subscriptions())
    }

    fn receivers(&self) -> &'static [&'static str] {
        &["/token", "/message/token"]
    }

    fn reachable_at(&self) -> ReachableAt<'_> {
        ReachableAt::Url(&self.url)
    }
}
