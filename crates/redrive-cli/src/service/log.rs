//! Sets up the log: lines for people on a terminal, JSON otherwise; always to stderr.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};

use redrive_core::printable;
use tracing::Level;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{self, Writer};

use crate::args::Global;

/// Whether the log goes to a terminal. If so, remarks are written for people; otherwise every line is a log event.
pub fn is_read_by_people() -> bool {
    io::stderr().is_terminal()
}

/// Starts logging. A second call has no effect: there is one log per process.
pub fn start(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => Level::ERROR,
        (false, 0) => Level::INFO,
        (false, 1) => Level::DEBUG,
        (false, _) => Level::TRACE,
    };
    let builder = tracing_subscriber::fmt().with_max_level(level);
    let started = if is_read_by_people() {
        // Colours would need another dependency, and requesting them without it panics in a debug build.
        let builder = builder.with_writer(io::stderr).with_ansi(false).with_target(false);
        builder.fmt_fields(for_people()).try_init()
    } else {
        builder.with_writer(|| Escaped(io::stderr())).json().flatten_event(true).try_init()
    };
    drop(started);
}

/// `message key=value`, each on one line and safe for a terminal, since values come from others.
fn for_people() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    let each = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = format!("{value:?}");
        let value = printable::line(&value);
        match field.name() {
            "message" => write!(writer, "{value}"),
            name => write!(writer, "{name}={value}"),
        }
    };
    format::debug_fn(each).delimited(" ")
}

/// Writes JSON lines without the characters that a serializer allows but that are unsafe on a terminal.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // The logger writes whole lines.
        match std::str::from_utf8(line) {
            Ok(text) => self.0.write_all(printable::json(text).as_bytes())?,
            Err(_) => self.0.write_all(line.escape_ascii().to_string().as_bytes())?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl CapturedLog {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    const HOSTILE: &str = "o-1\n\u{1b}[2J\u{9b}31m\u{202e}";

    fn say() {
        tracing::warn!(id = HOSTILE, shown = %HOSTILE, "it failed: {HOSTILE}");
    }

    #[test]
    fn a_line_for_people_is_one_line_without_control_characters() {
        let kept = CapturedLog::default();
        let to = kept.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).fmt_fields(for_people());
        tracing::subscriber::with_default(log.with_writer(move || to.clone()).finish(), say);
        let text = kept.text();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.trim_end().chars().any(printable::is_unsafe), "{text:?}");
        assert!(text.contains("it failed: o-1\\n\\u{1b}[2J") && text.contains("shown=o-1\\n"), "{text}");
    }

    #[test]
    fn a_line_for_machines_is_json_without_control_characters() {
        let kept = CapturedLog::default();
        let to = kept.clone();
        let log =
            tracing_subscriber::fmt().with_writer(move || Escaped(to.clone())).json().flatten_event(true);
        tracing::subscriber::with_default(log.finish(), say);
        let text = kept.text();
        assert!(!text.trim_end().chars().any(printable::is_unsafe), "{text:?}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["id"], HOSTILE);
    }
}
