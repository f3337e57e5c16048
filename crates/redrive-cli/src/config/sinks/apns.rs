//! `[pipeline.sink.apns]`: push to Apple devices.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive::Sink;
use redrive_sinks::apns::classes::ROWS;
use redrive_sinks::apns::options::{CONNECTIONS, CONNECTIONS_MAX, PRODUCTION, SANDBOX};
use redrive_sinks::{ApnsAuth, ApnsOptions, ApnsSink, SinkFault};

use super::super::declared::Form::{Address, File, Open, Text, Whole, Words};
use super::super::declared::{Header, Setting, SettingTable, words};
use super::super::fault::Fault;
use super::super::reader::{Section, SettingReader};
use super::super::words::quoted;
use super::common::{CA_FILE, CONCURRENCY, HASH_KEY_FILE, ON_PURGED, PURGE, TIMEOUT};
use super::kind::{ReachableAt, SinkKind, SinkParts, SinkRead, SinkSettings, SubscriptionSettings};
use super::push::{self, PushSettings};

pub(super) const KIND: SinkKind = SinkKind { name: "apns", tables: TABLES, read };

const ENVIRONMENTS: [(&str, &str); 2] = [("production", PRODUCTION), ("sandbox", SANDBOX)];

#[rustfmt::skip] // one line for each setting
const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "pipeline.sink.apns",
        header: Header::Example,
        about: "instead of [pipeline.sink.webhook]: pushes to Apple devices; docs/guide/push.md has the form of a message",
        settings: &[
            Setting::example("key_file", File, r#""/etc/redrive/AuthKey_ABC123DEFG.p8""#, "the key from the developer account; or certificate_file"),
            Setting::example("key_id", Text, r#""ABC123DEFG""#, "its id"),
            Setting::example("team_id", Text, r#""DEF123GHIJ""#, "the account's id"),
            Setting::example("certificate_file", File, r#""/etc/redrive/apns.pem""#, "a certificate instead of a key, PEM"),
            Setting::example("certificate_key_file", File, r#""/etc/redrive/apns-key.pem""#, "its private key"),
            Setting::default("environment", Words(|| words(&ENVIRONMENTS)), r#""production""#, "which server of Apple"),
            Setting::example("url", Address, r#""https://localhost:8443""#, "another server, instead of `environment`"),
            Setting::example("topic", Text, r#""com.example.app""#, "default app (topic) for messages that do not name one"),
            Setting::default("connections", Whole(1, CONNECTIONS_MAX as u64), "2", "maximum number of connections; each carries as many streams as APNs allows"),
            CA_FILE,
            HASH_KEY_FILE,
            PURGE,
            ON_PURGED,
            TIMEOUT,
            CONCURRENCY,
            Setting::example("classes", Open(&Text), r#"{ "BadDeviceToken" = "gone" }"#, "overrides rows of the class table: a reason, \"429\", \"5xx\", \"timeout\" … = ok or a class"),
        ],
    },
];

#[derive(Clone, Debug)]
pub struct ApnsConfig {
    /// `None` if the credentials are incomplete.
    pub auth: Option<ApnsAuth>,
    pub url: String,
    pub topic: Option<String>,
    pub connections: Option<u32>,
    pub push: PushSettings,
}

impl ApnsConfig {
    fn options(&self) -> Result<ApnsOptions, Vec<SinkFault>> {
        let nobody =
            || ApnsAuth::Token { key_file: PathBuf::new(), key_id: String::new(), team_id: String::new() };
        let mut options = ApnsOptions::new(self.auth.clone().unwrap_or_else(nobody));
        options.url.clone_from(&self.url);
        options.topic.clone_from(&self.topic);
        options.connections = self.connections.unwrap_or(CONNECTIONS);
        options.ca_file.clone_from(&self.push.ca_file);
        options.classes = self.push.class_table(ROWS)?;
        options.hash_key = self.push.hash_key()?;
        Ok(options)
    }
}

fn read(reader: &mut SettingReader, section: &Section<'_>) -> SinkRead {
    reader.unknown_keys(section);
    let auth = auth(reader, section);
    let is_complete = auth.is_some();
    let environment = reader.one_of(section, "environment", &ENVIRONMENTS).map(|set| set.value);
    let url = reader.text(section, "url").map(|set| set.value);
    if let (Some(environment), Some(url)) = (section.at("environment"), section.at("url")) {
        let problem = "both `environment` and `url` are set, and both choose the server";
        let name = section.name("url");
        let fix = format!("remove `{name}`");
        reader.fault(section, Fault::line(name, problem, fix, vec![environment, url]));
    }
    let settings = ApnsConfig {
        auth,
        url: url.or_else(|| environment.map(str::to_owned)).unwrap_or_else(|| PRODUCTION.to_owned()),
        topic: reader.text(section, "topic").map(|set| set.value),
        connections: reader.count(section, "connections"),
        push: PushSettings::read(reader, section),
    };
    SinkRead { settings: Arc::new(settings), is_complete }
}

/// Reads a key with its ids, or a certificate with its key.
fn auth(reader: &mut SettingReader, section: &Section<'_>) -> Option<ApnsAuth> {
    if let (Some(key), Some(certificate)) = (section.at("key_file"), section.at("certificate_file")) {
        let problem = "both `key_file` and `certificate_file` are set: use one of them";
        let name = section.name("certificate_file");
        let fix = format!("remove `{name}`");
        reader.fault(section, Fault::line(name, problem, fix, vec![key, certificate]));
        return None;
    }
    if section.get("certificate_file").is_some() {
        let certificate_file = reader.text(section, "certificate_file")?.value.into();
        let key_file = push::required(reader, section, "certificate_key_file", "/etc/redrive/apns-key.pem");
        let key_file = PathBuf::from(key_file?);
        push::secret_file(reader, section, "certificate_key_file", &key_file);
        return Some(ApnsAuth::Certificate { certificate_file, key_file });
    }
    let key_file = push::required(reader, section, "key_file", "/etc/redrive/AuthKey_ABC123DEFG.p8");
    let key_id = push::required(reader, section, "key_id", "ABC123DEFG");
    let team_id = push::required(reader, section, "team_id", "DEF123GHIJ");
    let key_file = PathBuf::from(key_file?);
    push::secret_file(reader, section, "key_file", &key_file);
    Some(ApnsAuth::Token { key_file, key_id: key_id?, team_id: team_id? })
}

impl SinkSettings for ApnsConfig {
    fn check(&self, _timeout: Option<Duration>) -> Vec<SinkFault> {
        match (self.options(), &self.auth) {
            (Err(faults), _) => faults,
            (Ok(options), Some(_)) => options.check(),
            (Ok(options), None) => options.check_server(),
        }
    }

    fn build(&self, parts: &SinkParts) -> Result<Arc<dyn Sink>, Vec<SinkFault>> {
        let mut options = ApnsOptions { timeout: parts.timeout, ..self.options()? };
        options.hash_key = options.hash_key.or_else(|| parts.hash_key.clone());
        options.other_members.clone_from(&parts.other_members);
        if let Some(table) = &parts.subscriptions {
            options.subscriptions = table.clone();
        }
        Ok(Arc::new(ApnsSink::build(options).map_err(|fault| vec![fault])?))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = match &self.auth {
            None => Vec::new(),
            Some(ApnsAuth::Token { key_file, key_id, team_id }) => vec![
                ("key_file", push::shown(key_file)),
                ("key_id", quoted(key_id)),
                ("team_id", quoted(team_id)),
            ],
            Some(ApnsAuth::Certificate { certificate_file, key_file }) => vec![
                ("certificate_file", push::shown(certificate_file)),
                ("certificate_key_file", push::shown(key_file)),
            ],
        };
        values.push(match self.url.as_str() {
            PRODUCTION => ("environment", quoted("production")),
            SANDBOX => ("environment", quoted("sandbox")),
            other => ("url", quoted(other)),
        });
        values.extend(self.topic.iter().map(|topic| ("topic", quoted(topic))));
        values.push(("connections", self.connections.unwrap_or(CONNECTIONS).to_string()));
        values.extend(self.push.values());
        values
    }

    fn subscriptions(&self) -> Option<SubscriptionSettings<'_>> {
        Some(self.push.subscriptions())
    }

    fn receivers(&self) -> &'static [&'static str] {
        &["/token", "header:apns-device-token"]
    }

    fn reachable_at(&self) -> ReachableAt<'_> {
        ReachableAt::Url(&self.url)
    }
}
