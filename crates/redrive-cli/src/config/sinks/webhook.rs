//! `[pipeline.sink.webhook]`: delivers by HTTP POST. Plain data, from which the sink is built.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive::Sink;
use redrive_core::pace::RATE_MIN;
use redrive_core::{Pick, rate};
use redrive_sinks::webhook::LimitBy;
use redrive_sinks::webhook::options::PER_ENDPOINT;
use redrive_sinks::{ClassTable, Secret, SinkFault, WebhookOptions, WebhookSink};

use super::super::fault::Fault;
use super::super::headers::{self, HeaderConfig, HeaderValue};
use super::super::reader::{Section, SettingReader};
use super::super::words::{quoted, without_secrets};
use super::classes;
use super::identity::Identity;
use super::kind::{ReachableAt, SinkKind, SinkParts, SinkRead, SinkSettings};
use super::push;
use super::webhook_settings::TABLES;

pub(super) const KIND: SinkKind = SinkKind { name: "webhook", tables: TABLES, read };

pub(super) const LIMIT_BY: [(&str, LimitBy); 3] = {
    const fn named(limit_by: LimitBy) -> (&'static str, LimitBy) {
        (limit_by.name(), limit_by)
    }
    [named(LimitBy::Endpoint), named(LimitBy::Tenant), named(LimitBy::Key)]
};

/// The destination of messages.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// One address for all messages. It may contain credentials and is not printed.
    Url(String),
    /// Each message names its own.
    Endpoint(Pick),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(_) => f.write_str("Url(…)"),
            Self::Endpoint(pick) => f.debug_tuple("Endpoint").field(pick).finish(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    pub target: Target,
    pub headers: Vec<HeaderConfig>,
    /// Certificates to trust instead of the built-in list, in PEM.
    pub ca_file: Option<PathBuf>,
    /// How requests are signed, authenticated and formatted.
    pub identity: Identity,
    /// The unit that limits apply to.
    pub limit_by: LimitBy,
    /// Concurrent attempts against one endpoint; `None` uses the sink's default.
    pub per_endpoint: Option<u32>,
    /// Attempts per second against one endpoint, as written; already validated.
    pub per_endpoint_rate: Option<String>,
    pub allow_private_addresses: bool,
    pub hash_key_file: Option<PathBuf>,
    /// The proxy for requests. `proxy_auth_file` holds `user:password` for it.
    pub proxy: Option<String>,
    pub proxy_auth_file: Option<PathBuf>,
    /// Overrides of the class table for answers, as written: `("404", "gone")`. Already validated.
    pub classes: Vec<(String, String)>,
}

impl WebhookConfig {
    /// The options of the sink. Its time limit is that of the policy, if there is one.
    pub fn options(&self) -> Result<WebhookOptions, Vec<SinkFault>> {
        let mut options = match &self.target {
            Target::Url(url) => WebhookOptions::to_url(Secret::from(url.as_str())),
            Target::Endpoint(pick) => WebhookOptions::per_message(pick.clone()),
        };
        options.per_endpoint = self.per_endpoint;
        options.per_endpoint_rate = self.per_endpoint_rate.as_deref().and_then(|text| rate::parse(text).ok());
        options.limit_by = self.limit_by;
        self.identity.apply(&mut options);
        options.headers = self.headers.iter().map(HeaderConfig::setting).collect();
        options.ca_file.clone_from(&self.ca_file);
        options.allow_private_addresses = self.allow_private_addresses;
        options.hash_key = push::hash_key(self.hash_key_file.as_deref())?;
        options.proxy = self.proxy.as_deref().map(Secret::from);
        options.proxy_auth_file.clone_from(&self.proxy_auth_file);
        let classes = self.classes.iter().map(|(case, class)| (case.as_str(), class.as_str()));
        options.classes = ClassTable::from_settings(classes)?;
        Ok(options)
    }

    fn read(reader: &mut SettingReader, section: &Section<'_>) -> (Self, bool) {
        reader.unknown_keys(section);
        let target = target(reader, section);
        let endpoint_at = section.at("endpoint");
        let limit_by =
            reader.one_of(section, "limit_by", &LIMIT_BY).map_or(LimitBy::Endpoint, |set| set.value);
        let per_endpoint = per_endpoint(reader, section, limit_by);
        let headers = headers::read(reader, section, endpoint_at.as_ref());
        let has_target = target.is_some();
        let webhook = Self {
            headers,
            ca_file: reader.text(section, "ca_file").map(|set| set.value.into()),
            identity: Identity::read(reader, section),
            per_endpoint,
            per_endpoint_rate: per_endpoint_rate(reader, section, limit_by),
            limit_by,
            allow_private_addresses: reader
                .switch(section, "allow_private_addresses")
                .is_some_and(|set| set.value),
            hash_key_file: push::optional_secret_file(reader, section, "hash_key_file"),
            proxy: reader.text(section, "proxy").map(|set| set.value),
            proxy_auth_file: push::optional_secret_file(reader, section, "proxy_auth_file"),
            classes: classes::read(reader, section),
            target: target.unwrap_or_else(|| Target::Url("http://127.0.0.1/".to_owned())),
        };
        (webhook, has_target)
    }
}

fn read(reader: &mut SettingReader, section: &Section<'_>) -> SinkRead {
    let (settings, is_complete) = WebhookConfig::read(reader, section);
    SinkRead { settings: Arc::new(settings), is_complete }
}

impl SinkSettings for WebhookConfig {
    fn check(&self, timeout: Option<Duration>) -> Vec<SinkFault> {
        match self.options() {
            Ok(mut options) => {
                options.timeout = timeout.unwrap_or(options.timeout);
                options.check()
            }
            Err(faults) => faults,
        }
    }

    fn build(&self, parts: &SinkParts) -> Result<Arc<dyn Sink>, Vec<SinkFault>> {
        let timeout = parts.timeout;
        let faults = self.check(Some(timeout));
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut options = WebhookOptions { timeout, ..self.options()? };
        options.hash_key = options.hash_key.or_else(|| parts.hash_key.clone());
        let sink = WebhookSink::build(options).map_err(|fault| vec![fault])?;
        Ok(Arc::new(sink))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = vec![match &self.target {
            Target::Url(url) => ("url", quoted(&without_secrets(url))),
            Target::Endpoint(pick) => ("endpoint", quoted(&pick.to_string())),
        }];
        if !self.headers.is_empty() {
            let headers: Vec<String> = self
                .headers
                .iter()
                .map(|header| match &header.value {
                    HeaderValue::Plain(_) => format!("{} = \"…\"", header.name),
                    HeaderValue::File(path) => {
                        format!("{}_file = {}", header.name, quoted(&path.display().to_string()))
                    }
                })
                .collect();
            values.push(("headers", format!("{{ {} }}", headers.join(", "))));
        }
        values.extend(self.ca_file.iter().map(|path| ("ca_file", quoted(&path.display().to_string()))));
        values.extend(self.identity.values());
        let per_endpoint = self.per_endpoint.or(match (&self.target, self.limit_by) {
            (Target::Url(_), LimitBy::Endpoint) => None,
            _ => Some(PER_ENDPOINT),
        });
        values.push(("limit_by", quoted(self.limit_by.name())));
        values.extend(per_endpoint.map(|limit| ("per_endpoint", limit.to_string())));
        values.extend(self.per_endpoint_rate.iter().map(|rate| ("per_endpoint_rate", quoted(rate))));
        values.push(("allow_private_addresses", self.allow_private_addresses.to_string()));
        let path = |path: &PathBuf| quoted(&path.display().to_string());
        values.extend(self.hash_key_file.iter().map(|file| ("hash_key_file", path(file))));
        values.extend(self.proxy.iter().map(|proxy| ("proxy", quoted(&without_secrets(proxy)))));
        values.extend(self.proxy_auth_file.iter().map(|file| ("proxy_auth_file", path(file))));
        if !self.classes.is_empty() {
            let rows = self.classes.iter();
            let classes: Vec<String> =
                rows.map(|(case, meaning)| format!("\"{case}\" = {}", quoted(meaning))).collect();
            values.push(("classes", format!("{{ {} }}", classes.join(", "))));
        }
        values
    }

    fn reachable_at(&self) -> ReachableAt<'_> {
        match &self.target {
            Target::Url(_) if self.proxy.is_some() => {
                ReachableAt::Nobody("not checked: requests go through a proxy")
            }
            Target::Url(url) => ReachableAt::Url(url),
            Target::Endpoint(_) => ReachableAt::Nobody("not checked: each message names its own endpoint"),
        }
    }
}

/// Whether all messages count as one unit, so that endpoints are not told apart.
fn counts_as_one(section: &Section<'_>, limit_by: LimitBy) -> bool {
    section.get("endpoint").is_none() && limit_by == LimitBy::Endpoint
}

fn per_endpoint(reader: &mut SettingReader, section: &Section<'_>, limit_by: LimitBy) -> Option<u32> {
    let limit = reader.count(section, "per_endpoint")?;
    if !counts_as_one(section, limit_by) {
        return Some(limit);
    }
    let name = section.name("per_endpoint");
    let problem = format!(
        "`{name}` is for messages that name their endpoints, or with `limit_by`, and all of these go to one, where \
         `concurrency` limits how many calls run at once"
    );
    let at = section.at("per_endpoint").into_iter().collect();
    let fix = format!("remove `{name}`");
    reader.fault(section, Fault::line(name, problem, fix, at));
    None
}

fn per_endpoint_rate(reader: &mut SettingReader, section: &Section<'_>, limit_by: LimitBy) -> Option<String> {
    let value = reader.text(section, "per_endpoint_rate")?.value;
    let name = section.name("per_endpoint_rate");
    let at = || section.at("per_endpoint_rate").into_iter().collect();
    let slow = || format!("`{name} = \"{value}\"` is less than one an hour");
    let problem = match rate::parse(&value) {
        Ok(rate) => (rate < RATE_MIN).then(slow),
        Err(wrong) => Some(format!("`{name}`: {wrong}")),
    };
    if let Some(problem) = problem {
        let fix = format!("{name} = \"20/s\"");
        reader.fault(section, Fault::line(name, problem, fix, at()));
        return None;
    }
    if counts_as_one(section, limit_by) {
        let problem = format!(
            "`{name}` is for messages that name their endpoints, or with `limit_by`, and all of these go to one"
        );
        let fix = format!("remove `{name}`");
        reader.fault(section, Fault::line(name, problem, fix, at()));
        return None;
    }
    Some(value)
}

fn target(reader: &mut SettingReader, section: &Section<'_>) -> Option<Target> {
    let url = reader.text(section, "url");
    let endpoint = reader.pick(section, "endpoint");
    let (url_at, endpoint_at) = (section.at("url"), section.at("endpoint"));
    if url_at.is_some() && endpoint_at.is_some() {
        let problem = "both `url` and `endpoint` are set, and both choose where messages go";
        let at = [url_at, endpoint_at].into_iter().flatten().collect();
        let (url, endpoint) = (section.name("url"), section.name("endpoint"));
        let fix = format!("keep `{url}` or `{endpoint}`");
        reader.fault(section, Fault::line(url, problem, fix, at));
        return None;
    }
    if url_at.is_none() && endpoint_at.is_none() {
        let problem = "the webhook has neither `url` nor `endpoint`";
        let url = section.name("url");
        let fix = format!("{url} = \"http://127.0.0.1:8000/hook\"");
        reader.fault(section, Fault::line(url, problem, fix, Vec::new()));
        return None;
    }
    if let Some(url) = url {
        // The address may contain a password, so report only the problem.
        let rest = url.value.strip_prefix("http://").or_else(|| url.value.strip_prefix("https://"));
        let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        let usable = host.is_some_and(|host| !host.is_empty() && !host.contains(char::is_whitespace))
            && !url.value.contains(char::is_control);
        if !usable {
            let name = section.name("url");
            let problem = format!("`{name}` must begin with http:// or https:// and name a host");
            let fix = format!("{name} = \"http://127.0.0.1:8000/hook\"");
            reader.fault(section, Fault::value(name, problem, fix, url.at));
            return None;
        }
        return Some(Target::Url(url.value));
    }
    endpoint.map(Target::Endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_not_printed() {
        let target = Target::Url("https://user:hunter2@example.com".to_owned());
        assert!(!format!("{target:?}").contains("hunter2"));
    }
}
