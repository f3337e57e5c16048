//! `[[alert]]`: whom to notify when something is wrong, without Prometheus. Plain data; the service sends.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use redrive_core::duration::print;
use redrive_core::nearest::nearest;
use redrive_server::alerts::{AlertKind, Limits};
use redrive_sinks::{SinkFault, WebhookOptions};

use super::super::fault::Fault;
use super::super::headers;
use super::super::named::Named;
use super::super::reader::{Section, SettingReader};
use super::super::tree::At;
use super::super::words::{in_table, quoted, without_path};
use super::target::AlertTarget;

const EVERY_DEFAULT: Duration = Duration::from_mins(15);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Whom to notify of what, and how often.
#[derive(Clone, Debug)]
pub struct AlertConfig {
    pub on: Vec<AlertKind>,
    /// The pipelines it covers; never empty.
    pub pipelines: Vec<String>,
    pub to: AlertTarget,
    /// The minimum time between two notifications of the same alert.
    pub every: Duration,
    /// The time limit for sending one notification.
    pub timeout: Duration,
    pub limits: Limits,
    /// Where each given value came from.
    pub(in super::super) given: BTreeMap<String, At>,
}

impl AlertConfig {
    /// The options of the sink that sends, if the target is a webhook.
    pub fn options(&self) -> Option<WebhookOptions> {
        self.to.options(self.timeout)
    }

    /// Reads one table; `None` if it is incomplete. `names` are those of the pipelines.
    pub(in super::super) fn read(
        reader: &mut SettingReader,
        (section, at): (&Section<'_>, &At),
        index: usize,
        names: &[&str],
    ) -> Option<Self> {
        let section = &section.clone().part(format!("alert {}", index + 1));
        reader.unknown_keys(section);
        let on = kinds(reader, section);
        let pipelines = pipelines(reader, section, names);
        let every = reader.duration(section, "every").map_or(EVERY_DEFAULT, |set| set.value);
        let timeout = reader.duration(section, "timeout").map_or(TIMEOUT_DEFAULT, |set| set.value);
        let limits = limits(reader, section);
        let to = target(reader, section, at)?;
        let set_at = section.at("webhook").or_else(|| section.at("command")).unwrap_or_else(|| at.clone());
        let looked_at = to.clone();
        let look = move || target_faults(&looked_at, timeout, &set_at);
        reader.named.push(Named::new(section.part_name(), look));
        let given = section.table.entries.iter().map(|entry| (entry.key.clone(), entry.node.at.clone()));
        Some(Self { on, pipelines, to, every, timeout, limits, given: given.collect() })
    }
}

impl AlertConfig {
    /// All effective values, as TOML, without secrets.
    pub(in super::super) fn values(&self) -> Vec<(&'static str, String)> {
        let list = |words: &mut dyn Iterator<Item = &str>| {
            let words: Vec<String> = words.map(quoted).collect();
            format!("[{}]", words.join(", "))
        };
        let mut values = vec![
            ("on", list(&mut self.on.iter().copied().map(AlertKind::name))),
            ("pipelines", list(&mut self.pipelines.iter().map(String::as_str))),
        ];
        match &self.to {
            AlertTarget::Webhook { url, headers } => {
                values.push(("webhook", quoted(&without_path(url.expose()))));
                if !headers.is_empty() {
                    let headers: Vec<String> =
                        headers.iter().map(|header| format!("{} = \"…\"", header.name)).collect();
                    values.push(("headers", format!("{{ {} }}", headers.join(", "))));
                }
            }
            // The arguments may contain secrets.
            AlertTarget::Command(words) => {
                let program = words.first().map(String::as_str).into_iter();
                let rest = (words.len() > 1).then_some("…");
                values.push(("command", list(&mut program.chain(rest))));
            }
        }
        values.extend([
            ("every", quoted(&print(self.every))),
            ("timeout", quoted(&print(self.timeout))),
            ("dead_letters", self.limits.dead_letters.to_string()),
            ("within", quoted(&print(self.limits.within))),
            ("oldest_letter", quoted(&print(self.limits.oldest_letter))),
            ("queue_depth", self.limits.queue_depth.to_string()),
        ]);
        values
    }
}

fn kinds(reader: &mut SettingReader, section: &Section<'_>) -> Vec<AlertKind> {
    let names = AlertKind::ALL.map(AlertKind::name);
    let Some(given) = reader.texts(section, "on") else { return AlertKind::ALL.to_vec() };
    if given.value.is_empty() {
        let problem =
            format!("`on = []` sends no alerts; list some of {}, or remove it to get all", names.join(", "));
        reader.fault(section, Fault::value("on", problem, "remove `on`", given.at));
        return Vec::new();
    }
    let mut kinds = Vec::new();
    for word in given.value {
        let Some(kind) = AlertKind::from_name(&word.value) else {
            let near = nearest(&word.value, names).unwrap_or(names[0]);
            let problem = format!("`on` names `{}`, which is not one of {}", word.value, names.join(", "));
            reader.fault(section, Fault::value("on", problem, format!("\"{near}\""), word.at));
            continue;
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

fn pipelines(reader: &mut SettingReader, section: &Section<'_>, names: &[&str]) -> Vec<String> {
    let Some(given) = reader.texts(section, "pipelines") else {
        return names.iter().map(|name| (*name).to_owned()).collect();
    };
    if given.value.is_empty() {
        let problem = "`pipelines = []` matches no pipeline; remove it to watch all";
        reader.fault(section, Fault::value("pipelines", problem, "remove `pipelines`", given.at));
        return Vec::new();
    }
    let mut watched = Vec::new();
    for name in given.value {
        if !names.contains(&name.value.as_str()) {
            let problem = format!("`pipelines` names `{}`, and there is no such [[pipeline]]", name.value);
            let fix = match nearest(&name.value, names.iter().copied()) {
                Some(near) => format!("\"{near}\""),
                None => "remove `pipelines`".to_owned(),
            };
            reader.fault(section, Fault::value("pipelines", problem, fix, name.at));
        } else if !watched.contains(&name.value) {
            watched.push(name.value);
        }
    }
    watched
}

fn limits(reader: &mut SettingReader, section: &Section<'_>) -> Limits {
    let mut limits = Limits::default();
    if let Some(set) = reader.whole(section, "dead_letters") {
        limits.dead_letters = set.value;
    }
    if let Some(set) = reader.whole(section, "queue_depth") {
        limits.queue_depth = set.value;
    }
    if let Some(set) = reader.duration(section, "within") {
        limits.within = set.value;
    }
    if let Some(set) = reader.duration(section, "oldest_letter") {
        limits.oldest_letter = set.value;
    }
    limits
}

fn target(reader: &mut SettingReader, section: &Section<'_>, at: &At) -> Option<AlertTarget> {
    let webhook = reader.text(section, "webhook");
    let headers = headers::read(reader, section, None);
    let command = reader.texts(section, "command");
    if let (Some(_), Some(_)) = (section.get("webhook"), section.get("command")) {
        let at = [section.at("webhook"), section.at("command")].into_iter().flatten().collect();
        let problem = "`webhook` and `command` are both set: each needs its own [[alert]]";
        reader.fault(section, Fault::line("webhook", problem, "keep `webhook` or `command`", at));
        return None;
    }
    if section.get("webhook").or_else(|| section.get("command")).is_none() {
        let problem = "neither `webhook` nor `command` is set";
        let fix =
            "webhook = \"https://chat.example.com/hooks/redrive\", or command = [\"/usr/local/bin/page-me\"]";
        reader.fault(section, Fault::line("webhook", problem, fix, vec![at.clone()]));
        return None;
    }
    if let Some(headers) = section.at("headers").filter(|_| section.get("command").is_some()) {
        let problem = "`headers` go with a `webhook`, and this is a `command`";
        reader.fault(section, Fault::line("headers", problem, "remove `headers`", vec![headers]));
    }
    if let Some(url) = webhook {
        return Some(AlertTarget::Webhook { url: url.value.into(), headers });
    }
    let command = command?;
    let words: Vec<String> = command.value.into_iter().map(|word| word.value).collect();
    if words.first().is_none_or(String::is_empty) {
        let problem = "`command` names no program";
        let fix = "command = [\"/usr/local/bin/page-me\"]";
        reader.fault(section, Fault::value("command", problem, fix, command.at));
        return None;
    }
    Some(AlertTarget::Command(words))
}

fn target_faults(to: &AlertTarget, timeout: Duration, at: &At) -> Vec<Fault> {
    let of_sink = |fault: &SinkFault| {
        // The sink calls its address `url`.
        let key = if fault.key == "url" { "webhook" } else { fault.key.as_str() };
        let problem = fault.problem.replace("`url`", "`webhook`");
        let fix = in_table(&fault.fix, |name| if name == "url" { key.to_owned() } else { name.to_owned() });
        Fault::line(key, problem, fix, vec![at.clone()])
    };
    match to {
        AlertTarget::Webhook { .. } => {
            to.options(timeout).iter().flat_map(WebhookOptions::check).map(|fault| of_sink(&fault)).collect()
        }
        AlertTarget::Command(words) => {
            let program = words.first().map(String::as_str).unwrap_or_default();
            if !program.contains('/') || Path::new(program).is_file() {
                return Vec::new();
            }
            let problem = format!("`command` names `{program}`, and there is no such file");
            vec![Fault::line("command", problem, "correct its path", vec![at.clone()])]
        }
    }
}
