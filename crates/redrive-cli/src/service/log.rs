//! Where the log goes: lines for people on a terminal, JSON for machines everywhere else; always to stderr.

use std::io::{self, IsTerminal as _};

use tracing::Level;

use crate::args::Global;

/// Whether somebody reads along. Then remarks are for people; otherwise every line is one of the log.
pub fn is_read_by_people() -> bool {
    io::stderr().is_terminal()
}

/// Starts writing. A second call changes nothing: there is one log per process.
pub fn start(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => Level::ERROR,
        (false, 0) => Level::INFO,
        (false, 1) => Level::DEBUG,
        (false, _) => Level::TRACE,
    };
    let builder = tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(level);
    let started = if is_read_by_people() {
        builder.with_ansi(false).with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
    drop(started);
}
