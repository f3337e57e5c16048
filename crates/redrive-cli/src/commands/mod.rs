//! One file per command, each with its arguments and a `run`.

pub mod audit;
pub mod check;
pub mod completions;
pub mod config;
pub mod demo;
pub mod dlq;
pub mod downstream;
pub mod journal;
pub mod pause;
pub mod processor;
pub mod producer;
pub mod resume;
pub mod status;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failed};
use crate::output::Output;

/// Runs the command that was given.
pub fn run(cli: &Cli, out: &mut Output) -> Result<Exit, Failed> {
    let global = &cli.global;
    match &cli.command {
        Command::Demo(args) => demo::run(args, global, out),
        Command::Processor(args) => processor::run(args, global, out),
        Command::Producer(args) => producer::run(args, global, out),
        Command::Downstream(args) => downstream::run(args, global, out),
        Command::Dlq(args) => dlq::run(args, global, out),
        Command::Status(args) => status::run(args, global, out),
        Command::Pause(args) => pause::run(args, global, out),
        Command::Resume(args) => resume::run(args, global, out),
        Command::Check(args) => check::run(args, global, out),
        Command::Audit(args) => audit::run(args, global, out),
        Command::Config(args) => config::run(args, global, out),
        Command::Journal(args) => journal::run(args, global, out),
        Command::Completions(args) => completions::run(args, global, out),
    }
}
