//! All effective values and their origins: what `config show` and `check --explain` print.

mod pipeline;

use std::fmt;

use serde_json::{Value, json};

use super::load::Config;
use super::source::Source;
use super::tree::At;
use super::words::quoted;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    Default,
    Profile(&'static str),
    /// Derived from another setting.
    Follows(&'static str),
    /// `redrive.toml:14`
    File(String),
    Flag(&'static str),
    Variable(&'static str),
}

impl fmt::Display for ValueOrigin {
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
    pub origin: ValueOrigin,
}

/// A table with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedTable {
    /// Its header line: `[engine]`, `[[pipeline]]`.
    pub header: String,
    pub lines: Vec<Resolved>,
}

impl ResolvedTable {
    /// Lists the values of a table, each with the origin of its key.
    fn of(
        header: impl Into<String>,
        values: Vec<(&'static str, String)>,
        origin: impl Fn(&str) -> ValueOrigin,
    ) -> Self {
        let line = |(key, value)| Resolved { origin: origin(key), key: key.to_owned(), value };
        Self { header: header.into(), lines: values.into_iter().map(line).collect() }
    }

    /// Formats the table as TOML, with the origin of every value if requested.
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
    /// All effective values, table by table. Each file formats the values that it reads.
    pub fn resolved(&self) -> Vec<ResolvedTable> {
        let source = self.source.as_ref();
        let given = |key: &str| self.given.get(key).map(|at| place(at, source));
        let origin = |key: &str| match key {
            // Two names for one setting.
            "engine.state_dir" => given(key).or_else(|| given("engine.dir")),
            key => given(key),
        };
        let origin = |key: &str| origin(key).unwrap_or(ValueOrigin::Default);
        let of_table = |table: &str| {
            let table = table.to_owned();
            move |key: &str| origin(&format!("{table}.{key}"))
        };
        let mut engine = ResolvedTable::of("[engine]", self.engine.values(), of_table("engine"));
        for passed in self.engine.kafka.iter().flat_map(|kafka| &kafka.passed_on) {
            let key = format!("kafka.{}", quoted(&passed.key));
            let origin = origin(&format!("engine.{key}"));
            // The value is never shown: it may be a secret.
            engine.lines.push(Resolved { key, value: "\"…\"".to_owned(), origin });
        }
        let server = ResolvedTable::of("[server]", self.server.values(), of_table("server"));
        let mut tables = vec![engine, server];
        for token in &self.server.tokens {
            tables.push(ResolvedTable::of("[[server.token]]", token.values(), |_| origin("server.token")));
        }
        tables.extend(self.pipelines.iter().flat_map(|pipeline| pipeline.resolved(source)));
        for alert in &self.alerts {
            let origin =
                |key: &str| alert.given.get(key).map_or(ValueOrigin::Default, |at| place(at, source));
            tables.push(ResolvedTable::of("[[alert]]", alert.values(), origin));
        }
        tables
    }

    /// The text that was read, for messages about it.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }
}

pub(super) fn place(at: &At, source: Option<&Source>) -> ValueOrigin {
    match (at, source) {
        (At::File(span), Some(source)) => {
            ValueOrigin::File(format!("{}:{}", source.name(), source.line(span.start)))
        }
        (At::File(_), None) => ValueOrigin::Default,
        (At::Flag(name), _) => ValueOrigin::Flag(name),
        (At::Variable(name), _) => ValueOrigin::Variable(name),
    }
}
