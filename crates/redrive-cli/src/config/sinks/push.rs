//! Shared settings of the push sinks: certificates, the hash key, purging, overrides of the class table.

use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive::internal::subscriptions::Purge;
use redrive_sinks::push::{PushClasses, Rows};
use redrive_sinks::{Secret, SinkFault, WebhookOptions, check_hash_key};

use super::super::alert::target::AlertTarget;
use super::super::fault::Fault;
use super::super::named::Named;
use super::super::reader::{Section, SettingReader};
use super::super::secrets;
use super::super::tree::Data;
use super::super::words::{quoted, without_path};
use super::kind::SubscriptionSettings;

/// The timeout of one call, used only for checks.
const ON_PURGED_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings that every push sink has.
#[derive(Clone, Debug)]
pub struct PushSettings {
    pub ca_file: Option<PathBuf>,
    hash_key_file: Option<PathBuf>,
    purge: Option<Purge>,
    on_purged: Option<AlertTarget>,
    /// As written. The sink checks whether each is a row of the service.
    classes: Vec<(String, String)>,
}

impl PushSettings {
    pub(super) fn read(reader: &mut SettingReader, section: &Section<'_>) -> Self {
        Self {
            ca_file: reader.text(section, "ca_file").map(|set| set.value.into()),
            hash_key_file: optional_secret_file(reader, section, "hash_key_file"),
            purge: purge(reader, section),
            on_purged: on_purged(reader, section),
            classes: classes(reader, section),
        }
    }

    /// The class table of a service, with overrides.
    pub(super) fn class_table(&self, rows: Rows) -> Result<PushClasses, Vec<SinkFault>> {
        let own = self.classes.iter().map(|(case, meaning)| (case.as_str(), meaning.as_str()));
        PushClasses::from_settings(rows, own)
    }

    pub(super) fn hash_key(&self) -> Result<Option<Secret>, Vec<SinkFault>> {
        hash_key(self.hash_key_file.as_deref())
    }

    pub(super) fn subscriptions(&self) -> SubscriptionSettings<'_> {
        let purge = self.purge.unwrap_or_default();
        let has_hash_key = self.hash_key_file.is_some();
        SubscriptionSettings { purge, has_hash_key, on_purged: self.on_purged.as_ref() }
    }

    /// The values as `config show` prints them.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = vec![("purge", quoted(self.purge.unwrap_or_default().name()))];
        values.extend(self.ca_file.iter().map(|path| ("ca_file", shown(path))));
        values.extend(self.hash_key_file.iter().map(|path| ("hash_key_file", shown(path))));
        values.extend(self.on_purged.iter().map(|to| ("on_purged", shown_target(to))));
        values.extend(shown_classes(&self.classes));
        values
    }
}

/// Reads a required setting, and reports an example if it is missing.
pub(super) fn required(
    reader: &mut SettingReader,
    section: &Section<'_>,
    key: &str,
    example: &str,
) -> Option<String> {
    if section.get(key).is_none() {
        let name = section.name(key);
        let fix = format!("{name} = {}", quoted(example));
        let problem = format!("`{name}` is missing");
        reader.fault(section, Fault::line(name, problem, fix, Vec::new()));
        return None;
    }
    reader.text(section, key).map(|set| set.value)
}

/// Warns about a secret file that every user of the machine may read.
pub(super) fn secret_file(reader: &mut SettingReader, section: &Section<'_>, key: &str, path: &Path) {
    let Some(at) = section.at(key) else { return };
    let (name, path) = (section.name(key), path.to_owned());
    let look = move || secrets::exposed(&name, &path, &at).into_iter().collect();
    reader.named.push(Named::new(section.part_name(), look));
}

/// Reads an optional secret file.
pub(super) fn optional_secret_file(
    reader: &mut SettingReader,
    section: &Section<'_>,
    key: &str,
) -> Option<PathBuf> {
    let path = PathBuf::from(reader.text(section, key)?.value);
    secret_file(reader, section, key, &path);
    Some(path)
}

/// Reads `classes` as written. The sink checks whether each is a row of the service.
fn classes(reader: &mut SettingReader, section: &Section<'_>) -> Vec<(String, String)> {
    let Some(table) = reader.table(section, "classes") else { return Vec::new() };
    let mut classes = Vec::new();
    for entry in &table.table.entries {
        if let Data::Text(meaning) = &entry.node.data {
            classes.push((entry.key.clone(), meaning.clone()));
            continue;
        }
        let full = table.name(&entry.key);
        let problem = format!("`{full}` must be a text in quotes, not {}", entry.node.kind());
        let fix = format!("{full} = \"transient\"");
        reader.fault(section, Fault::line(&full, problem, fix, vec![entry.node.at.clone()]));
    }
    classes
}

/// Reads `purge`: how to treat endpoints that a push service reports gone.
fn purge(reader: &mut SettingReader, section: &Section<'_>) -> Option<Purge> {
    let words = Purge::ALL.map(|purge| (purge.name(), purge));
    reader.one_of(section, "purge", &words).map(|set| set.value)
}

/// Reads `on_purged`: an address that gets a POST, or a program with its arguments.
fn on_purged(reader: &mut SettingReader, section: &Section<'_>) -> Option<AlertTarget> {
    let entry = section.get("on_purged")?;
    if let Data::List(_) = &entry.node.data {
        let words = reader.texts(section, "on_purged")?.value;
        let words: Vec<String> = words.into_iter().map(|word| word.value).collect();
        if words.first().is_none_or(String::is_empty) {
            let name = section.name("on_purged");
            let fix = format!("{name} = [\"/usr/local/bin/forget-subscription\"]");
            let at = section.at("on_purged").into_iter().collect();
            reader.fault(section, Fault::line(&name, format!("`{name}` names no program"), fix, at));
            return None;
        }
        return Some(AlertTarget::Command(words));
    }
    let url = reader.text(section, "on_purged")?;
    let to = AlertTarget::Webhook { url: url.value.into(), headers: Vec::new() };
    let (name, looked_at) = (section.name("on_purged"), to.clone());
    let look = move || {
        let faults =
            looked_at.options(ON_PURGED_TIMEOUT).iter().flat_map(WebhookOptions::check).collect::<Vec<_>>();
        let of = |fault: &SinkFault| {
            let problem = fault.problem.replace("`url`", &format!("`{name}`"));
            let fix = format!(
                "{name} = \"https://example.com/purged\"; what needs a password is called by a program, as in {name} = \
                 [\"/usr/local/bin/forget-subscription\"]"
            );
            Fault::line(&name, problem, fix, vec![url.at.clone()])
        };
        faults.iter().map(of).collect()
    };
    reader.named.push(Named::new(section.part_name(), look));
    Some(to)
}

/// The target without possible secrets: the path of an address, the arguments of a program.
pub(super) fn shown_target(to: &AlertTarget) -> String {
    match to {
        AlertTarget::Webhook { url, .. } => quoted(&without_path(url.expose())),
        AlertTarget::Command(words) => {
            let rest = if words.len() > 1 { ", \"…\"" } else { "" };
            format!("[{}{rest}]", quoted(words.first().map(String::as_str).unwrap_or_default()))
        }
    }
}

/// Reads the key of `endpoint_hash` from its file.
pub(super) fn hash_key(path: Option<&Path>) -> Result<Option<Secret>, Vec<SinkFault>> {
    let Some(path) = path else { return Ok(None) };
    let fault = |problem: &str| {
        vec![SinkFault {
            key: "hash_key_file".to_owned(),
            value: path.display().to_string(),
            problem: format!("`hash_key_file` is {:?}, but {problem}", path.display().to_string()),
            fix: "a readable file with a secret, made by `openssl rand -hex 32 > hash.key`".to_owned(),
        }]
    };
    let key = Secret::read(path).map_err(|error| fault(&error.problem))?;
    check_hash_key(Some(&key)).map_err(|short| fault(&short.problem))?;
    Ok(Some(key))
}

/// A path as `config show` prints it.
pub(super) fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// `classes` as `config show` prints it.
pub(super) fn shown_classes(classes: &[(String, String)]) -> Option<(&'static str, String)> {
    if classes.is_empty() {
        return None;
    }
    let rows: Vec<String> =
        classes.iter().map(|(case, meaning)| format!("\"{case}\" = {}", quoted(meaning))).collect();
    Some(("classes", format!("{{ {} }}", rows.join(", "))))
}
