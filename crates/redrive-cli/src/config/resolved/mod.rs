//! Every value that holds, and where it came from: what `config show` and `check --explain` print.

mod alert;
mod health;
mod pipeline;

use std::fmt;

use serde_json::{Value, json};

use super::engine::EngineKind;
use super::kafka::{KafkaConfig, PassedOn};
use super::load::Config;
use super::server::READS;
use super::source::Source;
use super::tree::At;
use super::words::quoted;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    Profile(&'static str),
    /// It follows from another setting.
    Follows(&'static str),
    /// `redrive.toml:14`
    File(String),
    Flag(&'static str),
    Variable(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Follows(key) => write!(f, "from {key}"),
            Self::File(place) => f.write_str(place),
            Self::Flag(name) | Self::Variable(name) => f.write_str(name),
        }
    }
}

/// One setting as TOML, under its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub key: String,
    /// TOML; a secret is `"…"`.
    pub value: String,
    pub origin: Origin,
}

/// A table with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedTable {
    /// The line that begins it: `[engine]`, `[[pipeline]]`.
    pub header: String,
    pub lines: Vec<Resolved>,
}

impl ResolvedTable {
    /// As TOML, with the origin of every value behind it if that is wanted.
    pub fn text(&self, origin: bool) -> Vec<String> {
        let settings: Vec<String> =
            self.lines.iter().map(|line| format!("{} = {}", line.key, line.value)).collect();
        let width = settings.iter().map(|text| text.chars().count()).max().unwrap_or(0).min(60);
        let with_origin = |(text, line): (&String, &Resolved)| {
            let fill = " ".repeat(width.saturating_sub(text.chars().count()));
            format!("{text}{fill}  # {}", line.origin)
        };
        let lines = settings.iter().zip(&self.lines);
        let lines: Vec<String> =
            lines.map(|pair| if origin { with_origin(pair) } else { pair.0.clone() }).collect();
        std::iter::once(self.header.clone()).chain(lines).collect()
    }

    pub fn to_json(&self) -> Value {
        let settings: Vec<Value> = self
            .lines
            .iter()
            .map(|line| json!({"key": line.key, "value": line.value, "origin": line.origin.to_string()}))
            .collect();
        json!({"table": self.header, "settings": settings})
    }
}

impl Config {
    /// Everything that holds, table by table.
    pub fn resolved(&self) -> Vec<ResolvedTable> {
        let origin = |key: &str| self.given.get(key).map_or(Origin::Default, |at| self.place(at));
        let line = |table: &str, key: &str, value: String| Resolved {
            key: key.to_owned(),
            value,
            origin: origin(&format!("{table}.{key}")),
        };
        let mut engine = vec![line("engine", "kind", quoted(self.engine.kind.name()))];
        if self.engine.kind == EngineKind::Embedded {
            engine.push(line("engine", "dir", quoted(&self.engine.dir.display().to_string())));
            let scrub = self.engine.scrub.map_or_else(|| "off".to_owned(), redrive_core::duration::print);
            engine.push(line("engine", "scrub", quoted(&scrub)));
        }
        if let Some(kafka) = &self.engine.kafka {
            engine
                .extend(kafka_lines(kafka, &self.engine.dir).map(|(key, value)| line("engine", key, value)));
            // Never a value: it may be a secret.
            let passed = |passed: &PassedOn| {
                line("engine", &format!("kafka.{}", quoted(&passed.key)), "\"…\"".to_owned())
            };
            engine.extend(kafka.passed_on.iter().map(passed));
        }
        let mut server = vec![line("server", "listen", quoted(&self.server.listen.to_string()))];
        if let Some((name, _)) = READS.into_iter().find(|(_, reads)| *reads == self.server.reads) {
            server.push(line("server", "reads", quoted(name)));
        }
        if let Some((cert, key)) = &self.server.tls {
            server.push(line("server", "tls_cert_file", quoted(&cert.display().to_string())));
            server.push(line("server", "tls_key_file", quoted(&key.display().to_string())));
        }
        let mut tables = vec![
            ResolvedTable { header: "[engine]".to_owned(), lines: engine },
            ResolvedTable { header: "[server]".to_owned(), lines: server },
        ];
        for token in &self.server.tokens {
            let scopes: Vec<String> = token.scopes.iter().map(|scope| quoted(scope.name())).collect();
            let token_line = |key: &str, value: String| Resolved {
                origin: origin("server.token"),
                ..line("", key, value)
            };
            tables.push(ResolvedTable {
                header: "[[server.token]]".to_owned(),
                lines: vec![
                    token_line("name", quoted(&token.name)),
                    token_line("scopes", format!("[{}]", scopes.join(", "))),
                    token_line("secret_file", quoted(&token.secret_file.display().to_string())),
                ],
            });
        }
        tables.extend(self.pipelines.iter().flat_map(|pipeline| pipeline.resolved(self.source.as_ref())));
        tables.extend(self.alerts.iter().map(|alert| alert.resolved(self.source.as_ref())));
        tables
    }

    fn place(&self, at: &At) -> Origin {
        place(at, self.source.as_ref())
    }

    /// The text that was read, for messages about it.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }
}

fn kafka_lines<'k>(kafka: &KafkaConfig, dir: &std::path::Path) -> impl Iterator<Item = (&'k str, String)> {
    let brokers: Vec<String> = kafka.brokers.iter().map(|broker| quoted(broker)).collect();
    let lines = [
        ("brokers", Some(format!("[{}]", brokers.join(", ")))),
        ("group", Some(quoted(&kafka.group))),
        ("member", kafka.member.as_deref().map(quoted)),
        ("start", kafka.start.map(|start| quoted(start.name()))),
        ("topics", Some(quoted(kafka.topics.name()))),
        ("state_dir", Some(quoted(&dir.display().to_string()))),
        ("only", Some(quoted(kafka.only.name()))),
    ];
    lines.into_iter().filter_map(|(key, value)| value.map(|value| (key, value)))
}

pub(super) fn place(at: &At, source: Option<&Source>) -> Origin {
    match (at, source) {
        (At::File(span), Some(source)) => {
            Origin::File(format!("{}:{}", source.name(), source.line(span.start)))
        }
        (At::File(_), None) => Origin::Default,
        (At::Flag(name), _) => Origin::Flag(name),
        (At::Variable(name), _) => Origin::Variable(name),
    }
}
