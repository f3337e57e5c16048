//! A fault in a configuration, and its text.

use std::ops::Range;

use serde_json::{Value, json};

use super::keys::Keys;
use super::source::Source;
use super::tree::At;
use crate::output::{Paint, Style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// Whether the source line is shown with the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A wrong value: its line is shown, with carets under it.
    Value,
    /// A key, a relation between settings, or something missing: one line with the location at its end.
    Line,
}

/// One thing to repair (or to think about): its location, key, problem, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub severity: Severity,
    /// The pipeline or other part it belongs to, as named in messages: "pipeline `orders`".
    pub part: Option<String>,
    pub key: String,
    pub problem: String,
    /// The text under the carets.
    pub note: Option<String>,
    /// Empty if the problem already says it.
    pub fix: String,
    pub at: Vec<At>,
    pub form: Form,
}

impl Fault {
    /// Creates a fault in one value.
    pub fn value(key: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>, at: At) -> Self {
        Self::new(key, problem, fix, vec![at], Form::Value)
    }

    /// Creates a fault in a key or a relation.
    pub fn line(
        key: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
        at: Vec<At>,
    ) -> Self {
        Self::new(key, problem, fix, at, Form::Line)
    }

    fn new(
        key: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
        at: Vec<At>,
        form: Form,
    ) -> Self {
        Self {
            severity: Severity::Error,
            part: None,
            key: key.into(),
            problem: problem.into(),
            note: None,
            fix: fix.into(),
            at,
            form,
        }
    }

    #[must_use]
    pub fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    #[must_use]
    pub fn of(mut self, part: Option<&str>) -> Self {
        self.part = part.map(str::to_owned);
        self
    }

    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The order of display: warnings last, faults at several places after those at one.
    fn rank(&self) -> (bool, bool, usize) {
        let first = match self.at.first() {
            Some(At::File(span)) => span.start,
            _ => usize::MAX,
        };
        (self.severity == Severity::Warning, self.at.len() > 1, first)
    }

    /// The location, for people: `redrive.toml:2,31` or `--tiers`.
    fn location(&self, source: Option<&Source>) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut others = Vec::new();
        for at in &self.at {
            match (at, source) {
                (At::File(span), Some(source)) => {
                    let line = source.line(span.start).to_string();
                    if !lines.contains(&line) {
                        lines.push(line);
                    }
                }
                (At::File(_), None) => {}
                (At::Flag(name) | At::Variable(name), _) => others.push((*name).to_owned()),
            }
        }
        if let Some(source) = source.filter(|_| !lines.is_empty()) {
            others.insert(0, format!("{}:{}", source.name(), lines.join(",")));
        }
        others.join(" ")
    }

    fn to_json(&self, source: Option<&Source>) -> Value {
        let span = match self.at.first() {
            Some(At::File(span)) => Some(span),
            _ => None,
        };
        let place = span.zip(source).map(|(span, source)| source.place(span.start));
        json!({
            "severity": match self.severity { Severity::Error => "error", Severity::Warning => "warning" },
            "part": self.part,
            "key": self.key,
            "problem": match &self.note {
                Some(note) => format!("{}: {note}", self.problem),
                None => self.problem.clone(),
            },
            "fix": if self.fix.is_empty() { Value::Null } else { self.fix.clone().into() },
            "at": self.location(source),
            "line": place.map(|place| place.line),
            "column": place.map(|place| place.column),
        })
    }
}

/// All faults found in one run.
#[derive(Clone, Debug)]
pub struct Faults {
    pub source: Option<Source>,
    pub all: Vec<Fault>,
    /// Determines which lines may be shown.
    pub(super) keys: &'static Keys,
}

/// The column of the location of a one-line fault, unless the fault is longer.
const PLACE_COLUMN: usize = 88;

impl Faults {
    pub fn errors(&self) -> usize {
        self.all.iter().filter(|fault| fault.severity == Severity::Error).count()
    }

    pub fn warnings(&self) -> usize {
        self.all.len() - self.errors()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn sort(&mut self) {
        self.all.sort_by_key(Fault::rank);
    }

    /// The whole report, one string per line; the summary comes last if there are errors.
    pub fn lines(&self, paint: Paint) -> Vec<String> {
        let mut lines = Vec::new();
        for fault in &self.all {
            self.fault_lines(fault, paint, &mut lines);
        }
        if self.errors() > 0 {
            lines.push(self.summary());
        }
        lines
    }

    /// `4 errors, 1 warning. Nothing was started, no topic was touched.`
    pub fn summary(&self) -> String {
        format!("{}. Nothing was started, no topic was touched.", self.counts())
    }

    /// `4 errors, 1 warning`
    pub fn counts(&self) -> String {
        let counted = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        match self.warnings() {
            0 => counted(self.errors(), "error"),
            warnings => format!("{}, {}", counted(self.errors(), "error"), counted(warnings, "warning")),
        }
    }

    pub fn to_json(&self) -> Value {
        let source = self.source.as_ref();
        json!({
            "errors": self.errors(),
            "warnings": self.warnings(),
            "faults": self.all.iter().map(|fault| fault.to_json(source)).collect::<Vec<_>>(),
        })
    }

    fn fault_lines(&self, fault: &Fault, paint: Paint, lines: &mut Vec<String>) {
        let label = match fault.severity {
            Severity::Error => paint.paint(Style::Error, "error:"),
            Severity::Warning => paint.paint(Style::Warning, "warning:"),
        };
        let part = fault.part.as_ref().map(|part| format!("{part}: ")).unwrap_or_default();
        let shown = match (&self.source, fault.at.first(), fault.form) {
            (Some(source), Some(At::File(span)), Form::Value) => shown(self.keys, source, span),
            _ => None,
        };
        if let (Some(source), Some(shown)) = (&self.source, shown) {
            lines.push(format!("{label} {part}{}", fault.problem));
            let number = shown.line.to_string();
            let gutter = " ".repeat(number.len());
            lines.push(format!("{gutter}┌ {}:{number}", source.name()));
            lines.push(format!("{number}│ {}", shown.text));
            let carets = format!("{}{}", " ".repeat(shown.indent), "^".repeat(shown.width));
            let note = fault.note.as_ref().map(|note| format!(" {note}")).unwrap_or_default();
            lines.push(format!("{gutter}│ {}{note}", paint.paint(Style::Error, &carets)));
            if !fault.fix.is_empty() {
                lines.push(format!("  fix: {}", fault.fix));
            }
            lines.push(String::new());
            return;
        }
        let note = fault.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        // The second clause of a problem says what is allowed, so it serves as the fix.
        let says_fix = fault.fix.is_empty() || fault.problem.contains("; ");
        let fix = if says_fix { String::new() } else { format!("; {}", fault.fix) };
        let text = format!("{part}{}{note}{fix}", fault.problem);
        let place = fault.location(self.source.as_ref());
        let plain_label = match fault.severity {
            Severity::Error => "error:",
            Severity::Warning => "warning:",
        };
        let width = plain_label.len() + 1 + text.chars().count();
        let gap = " ".repeat(PLACE_COLUMN.saturating_sub(width).max(4));
        let tail = if place.is_empty() { String::new() } else { format!("{gap}{place}") };
        lines.push(format!("{label} {text}{tail}"));
    }
}

struct QuotedLine {
    line: usize,
    text: String,
    indent: usize,
    width: usize,
}

/// The line of a span, unless it may contain a secret.
fn shown(keys: &Keys, source: &Source, span: &Range<usize>) -> Option<QuotedLine> {
    let place = source.place(span.start);
    let text = source.line_text(place.line);
    if !keys.may_be_shown(source.text(), text) {
        return None;
    }
    // A tab counts as one character here, so that carets line up.
    let text = text.replace('\t', " ");
    Some(QuotedLine { line: place.line, text, indent: place.column - 1, width: source.width_on_line(span) })
}
