//! The binary `redrive`.
//!
//! # Layout, in the order a call passes through
//!
//! - [`args`]: global arguments
//! - [`config`]: turns `redrive.toml`, flags and environment into one checked configuration
//! - [`planning`]: what `check` computes from a configuration, and what `--assume` adds
//! - [`service`]: builds a processor from its configuration, starts and stops it
//! - [`commands`]: the command line, and one file per command, each with a `run`
//! - [`client`]: the client of the HTTP API, for commands that talk to a processor
//! - [`output`]: tables, numbers and progress; data goes to stdout, everything else to stderr
//! - [`mod@reference`]: the pages of docs/reference, generated from the code
//! - [`exit`]: the exit codes, and the error that carries one

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

/// Parses the command line, runs the command, and reports errors.
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

/// Converts a clap error. Help and version are answers; everything else is a usage error.
fn usage(error: &clap::Error) -> ExitCode {
    // If even the message cannot be written, nothing else can be done.
    let _ = error.print();
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() }
}
