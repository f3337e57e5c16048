//! `[pipeline.sink.webpush]`: push to browsers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive::Sink;
use redrive_sinks::webpush::classes::ROWS;
use redrive_sinks::webpush::options::PER_ENDPOINT;
use redrive_sinks::{SinkFault, WebPushOptions, WebPushSink};

use super::super::declared::Form::{File, Open, Switch, Text, Texts, Whole};
use super::super::declared::{Header, Setting, SettingTable};
use super::super::reader::{Section, SettingReader};
use super::super::words::quoted;
use super::common::{CA_FILE, CONCURRENCY, HASH_KEY_FILE, ON_PURGED, PURGE, TIMEOUT};
use super::kind::{ReachableAt, SinkKind, SinkParts, SinkRead, SinkSettings, SubscriptionSettings};
use super::push::{self, PushSettings};

pub(super) const KIND: SinkKind = SinkKind { name: "webpush", tables: TABLES, read };

#[rustfmt::skip] // one line for each setting
const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "pipeline.sink.webpush",
        header: Header::Example,
        about: "instead of [pipeline.sink.webhook]: pushes to browsers; docs/guide/push.md has the form of a message",
        settings: &[
            Setting::example("vapid_key_file", File, r#""/etc/redrive/vapid.pem""#, "the private key whose public half browsers subscribed with: PEM, or the JSON of a key pair"),
            Setting::example("previous_vapid_key_files", Texts, r#"["/etc/redrive/vapid-2025.pem"]"#, "keys that older subscriptions were made with; a message names its key"),
            Setting::example("subject", Text, r#""mailto:ops@example.com""#, "contact for push services: mailto: or https:"),
            CA_FILE,
            HASH_KEY_FILE,
            PURGE,
            ON_PURGED,
            TIMEOUT,
            CONCURRENCY,
            Setting::default("per_endpoint", Whole(1, 10_000), "5", "maximum concurrent pushes per subscription"),
            Setting::default("allow_private_addresses", Switch, "false", "whether subscriptions may lead to private addresses, also by plain http; for tests"),
            Setting::example("classes", Open(&Text), r#"{ "404" = "permanent" }"#, "overrides rows of the class table: \"404\", \"5xx\", \"VapidPkHashMismatch\", \"timeout\" … = ok or a class"),
        ],
    },
];

#[derive(Clone, Debug)]
pub struct WebPushConfig {
    pub vapid_key_file: PathBuf,
    /// Earlier keys that subscriptions were made with.
    pub previous_vapid_key_files: Vec<PathBuf>,
    pub subject: String,
    pub push: PushSettings,
    pub per_endpoint: Option<u32>,
    pub allow_private_addresses: bool,
}

impl WebPushConfig {
    fn options(&self) -> Result<WebPushOptions, Vec<SinkFault>> {
        let mut options = WebPushOptions::new(&self.vapid_key_file, &self.subject);
        options.vapid_key_files.extend(self.previous_vapid_key_files.iter().cloned());
        options.ca_file.clone_from(&self.push.ca_file);
        options.per_endpoint = self.per_endpoint.unwrap_or(PER_ENDPOINT);
        options.allow_private_addresses = self.allow_private_addresses;
        options.classes = self.push.class_table(ROWS)?;
        options.hash_key = self.push.hash_key()?;
        Ok(options)
    }
}

fn read(reader: &mut SettingReader, section: &Section<'_>) -> SinkRead {
    reader.unknown_keys(section);
    let key_file = push::required(reader, section, "vapid_key_file", "/etc/redrive/vapid.pem");
    let subject = push::required(reader, section, "subject", "mailto:ops@example.com");
    let is_complete = key_file.is_some() && subject.is_some();
    let vapid_key_file = PathBuf::from(key_file.unwrap_or_default());
    push::secret_file(reader, section, "vapid_key_file", &vapid_key_file);
    let previous = reader.texts(section, "previous_vapid_key_files").map(|set| set.value);
    let previous: Vec<PathBuf> =
        previous.unwrap_or_default().into_iter().map(|set| PathBuf::from(set.value)).collect();
    for path in &previous {
        push::secret_file(reader, section, "previous_vapid_key_files", path);
    }
    let settings = WebPushConfig {
        vapid_key_file,
        previous_vapid_key_files: previous,
        subject: subject.unwrap_or_else(|| "mailto:ops@example.com".to_owned()),
        push: PushSettings::read(reader, section),
        per_endpoint: reader.count(section, "per_endpoint"),
        allow_private_addresses: reader
            .switch(section, "allow_private_addresses")
            .is_some_and(|set| set.value),
    };
    SinkRead { settings: Arc::new(settings), is_complete }
}

impl SinkSettings for WebPushConfig {
    fn check(&self, _timeout: Option<Duration>) -> Vec<SinkFault> {
        self.options().map_or_else(|faults| faults, |options| options.check())
    }

    fn build(&self, parts: &SinkParts) -> Result<Arc<dyn Sink>, Vec<SinkFault>> {
        let mut options = WebPushOptions { timeout: parts.timeout, ..self.options()? };
        options.hash_key = options.hash_key.or_else(|| parts.hash_key.clone());
        options.other_members.clone_from(&parts.other_members);
        if let Some(table) = &parts.subscriptions {
            options.subscriptions = table.clone();
        }
        Ok(Arc::new(WebPushSink::build(options).map_err(|fault| vec![fault])?))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = vec![("vapid_key_file", push::shown(&self.vapid_key_file))];
        if !self.previous_vapid_key_files.is_empty() {
            let files: Vec<String> =
                self.previous_vapid_key_files.iter().map(|path| push::shown(path)).collect();
            values.push(("previous_vapid_key_files", format!("[{}]", files.join(", "))));
        }
        values.push(("subject", quoted(&self.subject)));
        values.push(("per_endpoint", self.per_endpoint.unwrap_or(PER_ENDPOINT).to_string()));
        values.push(("allow_private_addresses", self.allow_private_addresses.to_string()));
        values.extend(self.push.values());
        values
    }

    fn subscriptions(&self) -> Option<SubscriptionSettings<'_>> {
        Some(self.push.subscriptions())
    }

    fn receivers(&self) -> &'static [&'static str] {
        &[
            "/subscription/endpoint",
            "/subscription/keys/p256dh",
            "/subscription/keys/auth",
            "header:push-subscription",
        ]
    }

    fn reachable_at(&self) -> ReachableAt<'_> {
        ReachableAt::Nobody("not checked: each message names its own push service")
    }
}
