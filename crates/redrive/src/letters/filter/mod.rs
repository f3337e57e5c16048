//! The filter language that selects letters, the same for command line, API and page.
//!
//! `reason:permanent,gone error:"connection refused" attempts:>=3 -tenant:acme`: a space is *and*, a comma is *or*, a
//! leading `-` is *not*, and `=` is accepted for `:`. A [`Filter`] prints itself in a form that reads back as the same
//! filter.

pub(crate) mod matches;
mod parse;

use std::fmt;
use std::time::Duration;

use redrive_core::{Class, Family, GroupId, Reason, duration};

use crate::engine::LetterState;
use crate::letters::decimal::Decimal;
use crate::letters::redact::Redaction;

/// The longest text that is accepted as a filter, in bytes.
pub(crate) const FILTER_BYTES_MAX: usize = 4096;

/// Selects letters. Never empty: to select all letters, say so in the [`Selection`](super::Selection).
///
/// ```
/// use redrive::letters::Filter;
///
/// let filter = Filter::parse("reason:max_retries status:503")?;
/// assert!(Filter::parse("reson:max_retries").is_err());
/// # Ok::<(), redrive::letters::FilterError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    pub(super) terms: Vec<Term>,
}

impl Filter {
    /// The first field that only letters have. A filter with such a field matches no pending message.
    pub fn only_for_letters(&self) -> Option<&'static str> {
        self.terms.iter().find_map(|term| match term.test {
            Test::Reason(_) => Some("reason"),
            Test::State(_) => Some("state"),
            Test::Group(_) => Some("group"),
            Test::Edit(_) => Some("edit"),
            _ => None,
        })
    }

    /// The ids of which a message must have one, if the filter requires that.
    pub(super) fn ids(&self) -> Option<&[String]> {
        self.terms.iter().find_map(|term| match &term.test {
            Test::Id(ids) if !term.negated => Some(&ids[..]),
            _ => None,
        })
    }

    /// The group that a letter must be in, if the filter requires exactly one.
    pub(super) fn group(&self) -> Option<GroupId> {
        self.terms.iter().find_map(|term| match &term.test {
            Test::Group(groups) if !term.negated && groups.len() == 1 => groups.first().copied(),
            _ => None,
        })
    }

    /// Whether the filter contains text of a message or of an error, so that showing the filter would reveal it.
    pub fn quotes(&self) -> bool {
        self.terms.iter().any(|term| {
            matches!(
                term.test,
                Test::Error(_)
                    | Test::Key(_)
                    | Test::Tenant(_)
                    | Test::Id(_)
                    | Test::CorrelationId(_)
                    | Test::Header { .. }
                    | Test::Payload { .. }
            )
        })
    }

    /// The first part by which a hidden value could be guessed piece by piece: a search in the error text, or a range
    /// comparison of a payload value. Any payload field counts, since it may repeat a hidden value. Comparing for
    /// equality is allowed, since that needs knowledge of the value.
    pub fn guesses(&self, hidden: &Redaction) -> Option<String> {
        let is_range = |value: &PayloadTest| match value {
            PayloadTest::Text(_) => false,
            PayloadTest::Number(compared) => compared.how != Comparison::Equal,
        };
        self.terms.iter().find_map(|term| match &term.test {
            Test::Error(_) if hidden.hides_texts() => Some("error".to_owned()),
            Test::Payload { path, values }
                if hidden.is_guessed_at(&format!("/{}", path.replace('.', "/"))) =>
            {
                values.iter().any(is_range).then(|| format!("payload.{path}"))
            }
            _ => None,
        })
    }

    /// Whether it restricts the state of letters.
    pub fn names_state(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.test, Test::State(_)))
    }
}

/// One field with its allowed values. All terms must hold.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub negated: bool,
    pub test: Test,
}

/// A field with its values, one of which must match.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    Reason(Vec<Reason>),
    ErrorClass(Vec<Family>),
    Class(Vec<Class>),
    State(Vec<LetterState>),
    Group(Vec<GroupId>),
    /// Names of edits; the letter must have one of them, not undone.
    Edit(Vec<String>),
    /// Parts of the last error's text, ignoring case.
    Error(Vec<String>),
    /// The HTTP status of the last failure.
    Status(Vec<Compared<u64>>),
    Attempts(Vec<Compared<u64>>),
    Replays(Vec<Compared<u64>>),
    /// The time since the last death of a letter, or since the creation of a message.
    Age(Vec<Compared<Duration>>),
    Key(Vec<String>),
    Tenant(Vec<String>),
    Id(Vec<String>),
    CorrelationId(Vec<String>),
    Header {
        name: String,
        values: Vec<String>,
    },
    Payload {
        path: String,
        values: Vec<PayloadTest>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Above,
    AtLeast,
    Below,
    AtMost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compared<T> {
    pub how: Comparison,
    pub with: T,
}

/// A test of a value in a JSON payload.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PayloadTest {
    /// The text of the value: a string without quotes, anything else as in JSON.
    Text(String),
    Number(Compared<Decimal>),
}

/// All fields, in the order in which they are listed.
pub(crate) const FIELDS: [&str; 17] = [
    "reason",
    "error-class",
    "class",
    "error",
    "status",
    "attempts",
    "age",
    "key",
    "tenant",
    "header.NAME",
    "payload.PATH",
    "id",
    "correlation_id",
    "replays",
    "state",
    "group",
    "edit",
];

/// Why a filter cannot be parsed, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {problem}")]
pub struct FilterError {
    /// The column in characters, from 1.
    pub column: usize,
    /// The problem at this column.
    pub problem: String,
}

impl FilterError {
    /// The filter text with a mark under the wrong place, for a terminal.
    pub fn show(&self, text: &str) -> String {
        format!("{text}\n{:>width$} {}", "^", self.problem, width = self.column)
    }
}

impl Filter {
    /// Parses a filter. An empty text is an error, because it would silently select all letters.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        parse::parse(text)
    }
}

impl std::str::FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}

impl Comparison {
    /// Longer signs first, so that `>=` is not read as `>`.
    pub(super) const SIGNS: [(&'static str, Self); 4] =
        [(">=", Self::AtLeast), ("<=", Self::AtMost), (">", Self::Above), ("<", Self::Below)];

    fn sign(self) -> &'static str {
        Self::SIGNS.iter().find(|(_, how)| *how == self).map_or("", |(sign, _)| sign)
    }

    pub(super) fn holds<T: PartialOrd>(self, value: &T, with: &T) -> bool {
        match self {
            Self::Equal => value == with,
            Self::Above => value > with,
            Self::AtLeast => value >= with,
            Self::Below => value < with,
            Self::AtMost => value <= with,
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, term) in self.terms.iter().enumerate() {
            if number > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{}{}", if term.negated { "-" } else { "" }, term.test)?;
        }
        Ok(())
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |values: &[String]| joined(values, |value| quoted(value));
        let number = |values: &[Compared<u64>]| joined(values, |v| format!("{}{}", v.how.sign(), v.with));
        match self {
            Self::Reason(values) => write!(f, "reason:{}", joined(values, Reason::to_string)),
            Self::ErrorClass(values) => write!(f, "error-class:{}", joined(values, Family::to_string)),
            Self::Class(values) => write!(f, "class:{}", joined(values, Class::to_string)),
            Self::State(values) => write!(f, "state:{}", joined(values, |state| state.name().to_owned())),
            Self::Group(values) => write!(f, "group:{}", joined(values, GroupId::to_string)),
            Self::Edit(values) => write!(f, "edit:{}", text(values)),
            Self::Error(values) => write!(f, "error:{}", text(values)),
            Self::Status(values) => write!(f, "status:{}", number(values)),
            Self::Attempts(values) => write!(f, "attempts:{}", number(values)),
            Self::Replays(values) => write!(f, "replays:{}", number(values)),
            Self::Age(values) => {
                let age = |v: &Compared<Duration>| format!("{}{}", v.how.sign(), duration::print(v.with));
                write!(f, "age:{}", joined(values, age))
            }
            Self::Key(values) => write!(f, "key:{}", text(values)),
            Self::Tenant(values) => write!(f, "tenant:{}", text(values)),
            Self::Id(values) => write!(f, "id:{}", text(values)),
            Self::CorrelationId(values) => write!(f, "correlation_id:{}", text(values)),
            Self::Header { name, values } => write!(f, "header.{name}:{}", text(values)),
            Self::Payload { path, values } => {
                let value = |value: &PayloadTest| match value {
                    PayloadTest::Text(text) => quoted(text),
                    PayloadTest::Number(v) => format!("{}{}", v.how.sign(), v.with),
                };
                write!(f, "payload.{path}:{}", joined(values, value))
            }
        }
    }
}

fn joined<T>(values: &[T], print: impl Fn(&T) -> String) -> String {
    values.iter().map(print).collect::<Vec<_>>().join(",")
}

/// A value as it is spelled in a filter, quoted if it could be misread otherwise.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@' | '+');
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests;
