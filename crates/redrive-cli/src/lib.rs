//! The binary `redrive`.
//!
//! # Layout, in the order a call passes through
//!
//! - [`args`]: what every command takes
//! - [`config`]: `redrive.toml`, flags and environment become one checked configuration
//! - [`planning`]: what `check` computes from a configuration, and what `--assume` adds
//! - [`service`]: a processor from its configuration, started and ended
//! - [`commands`]: the command line, and one file per command, each with a `run`
//! - [`client`]: the HTTP API, as the commands use it that talk to a processor
//! - [`output`]: tables, numbers and progress; data goes to stdout, everything else to stderr
//! - [`mod@reference`]: the pages of docs/reference that are made from the code
//! - [`exit`]: the exit codes, and what ends a command

pub mod args;
pub mod client;
pub mod commands;
pub mod config;
pub mod exit;
pub mod output;
pub mod planning;
pub mod reference;
pub mod service;

use std::process::ExitCode;

use clap::Parser as _;

pub use args::Global;
pub use commands::Cli;
pub use exit::{Exit, Failed};

/// Reads the command line, runs the command, says what went wrong.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let mut out = output::Output::of_process(&cli.global);
    let exit = commands::run(&cli, &mut out).unwrap_or_else(|failed| {
        out.failed(&failed);
        failed.exit
    });
    exit.into()
}

/// Help and version are answers; everything else clap says is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    // Nothing better can be done when even the message cannot be written.
    let _ = error.print();
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() }
}
