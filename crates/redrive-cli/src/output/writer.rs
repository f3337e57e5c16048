//! The two output streams of a process, and the global flags for them.

use std::io::{self, Write};

use redrive_core::printable;

use super::progress::Progress;
use super::safe;
use super::style::{Paint, Style};
use super::table::TextTable;
use crate::args::Global;
use crate::exit::Failed;

/// The output of a command. Every write to stdout can fail; `?` turns a closed reader into a quiet end.
pub struct Output {
    data: Box<dyn Write>,
    notes: Box<dyn Write>,
    /// Colour on stdout and on stderr; only one of them may be a terminal.
    data_paint: Paint,
    notes_paint: Paint,
    json: bool,
    quiet: bool,
    verbose: u8,
}

impl Output {
    pub fn of_process(global: &Global) -> Self {
        Self {
            data_paint: Paint::for_stream(&io::stdout()),
            notes_paint: Paint::for_stream(&io::stderr()),
            ..Self::to(global, io::stdout(), io::stderr())
        }
    }

    /// For tests: writes anywhere, without colour.
    pub fn to(global: &Global, data: impl Write + 'static, notes: impl Write + 'static) -> Self {
        Self {
            data: Box::new(data),
            notes: Box::new(notes),
            data_paint: Paint::OFF,
            notes_paint: Paint::OFF,
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
        }
    }

    /// Whether `--json` was given.
    pub fn is_json(&self) -> bool {
        self.json
    }

    pub fn verbose(&self) -> u8 {
        self.verbose
    }

    /// Prints a line of data.
    pub fn line(&mut self, text: &str) -> Result<(), Failed> {
        writeln!(self.data, "{}", safe::screen(text, self.data_paint))?;
        Ok(())
    }

    /// Prints data unchanged, without a line end.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        self.data.write_all(bytes)?;
        self.data.flush()?;
        Ok(())
    }

    pub fn table(&mut self, table: &TextTable) -> Result<(), Failed> {
        for (i, line) in table.lines().into_iter().enumerate() {
            let line = if i == 0 { self.data_paint.paint(Style::Strong, &line) } else { line };
            self.line(&line)?;
        }
        Ok(())
    }

    /// Prints one JSON document on one line.
    pub fn json(&mut self, value: &serde_json::Value) -> Result<(), Failed> {
        writeln!(self.data, "{}", printable::json(&value.to_string()))?;
        Ok(())
    }

    pub fn paint(&self, style: Style, text: &str) -> String {
        self.data_paint.paint(style, text)
    }

    /// Prints progress and remarks for people: to stderr, nothing with `-q`.
    pub fn note(&mut self, text: &str) {
        if !self.quiet {
            // Failing to write a remark is no reason to stop.
            let _ = writeln!(self.notes, "{}", safe::screen(text, self.notes_paint));
        }
    }

    /// Prints problems: to stderr, even with `-q`.
    pub fn complain(&mut self, text: &str) {
        let _ = writeln!(self.notes, "{}", safe::screen(text, self.notes_paint));
    }

    pub fn paint_note(&self, style: Style, text: &str) -> String {
        self.notes_paint.paint(style, text)
    }

    pub fn notes_paint(&self) -> Paint {
        self.notes_paint
    }

    /// Whether to show progress.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && !self.json
    }

    /// A progress bar for work of a known size. Shown only to people.
    pub fn progress(&self, label: &str, total: u64) -> Progress {
        Progress::new(label, total, self.shows_progress())
    }

    /// Reports why a command ended early. With `--json` the error is JSON too, on stderr.
    pub fn failed(&mut self, failed: &Failed) {
        if failed.message.is_empty() {
            return;
        }
        if self.json {
            let error = serde_json::json!({
                "error": failed.message, "hint": failed.hint, "exit": failed.exit.code(),
            });
            // Failing to write an error cannot be handled.
            let _ = writeln!(self.notes, "{}", printable::json(&error.to_string()));
        } else {
            let label = self.notes_paint.paint(Style::Error, "error:");
            self.complain(&format!("{label} {failed}"));
        }
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("json", &self.json).field("quiet", &self.quiet).finish_non_exhaustive()
    }
}
