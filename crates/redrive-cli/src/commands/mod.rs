//! The command line, with one file per command that holds its arguments and a `run`.

pub mod audit;
pub mod breaker;
pub mod check;
pub mod completions;
pub mod config;
pub mod demo;
pub mod dlq;
pub mod downstream;
pub mod journal;
pub mod lab;
pub mod message;
pub mod messages;
pub mod pause;
pub mod processor;
pub mod producer;
pub mod resume;
pub mod send;
pub mod status;
pub mod subscriptions;
pub mod webhook;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::Output;

/// Retries and dead letters: every message ends in success or in a dead letter you can look at, fix and send again.
#[derive(Debug, Parser)]
#[command(name = "redrive", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 ok · 1 completed, but the result is bad · 2 usage or configuration · \
                        70 watchdog · 74 storage failed · 75 try again · 130 interrupted by ^C")]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything in one process: producer, flaky downstream, pipeline, dashboard
    Demo(demo::DemoArgs),
    /// Run pipelines from redrive.toml, or one from flags
    Processor(Box<processor::ProcessorArgs>),
    /// Produce orders at a fixed rate, however slow the consumer is
    Producer(producer::ProducerArgs),
    /// A downstream that fails on request, with a ledger of what was applied
    Downstream(downstream::DownstreamArgs),
    /// Send a message, or many as NDJSON, into a pipeline
    Send(send::SendArgs),
    /// Show one message by its id: its state, and the outcome of each attempt
    Message(message::MessageArgs),
    /// List what waits in a pipeline, make messages due or cancel them
    Messages(messages::MessagesArgs),
    /// Look at dead letters, replay, discard or export them
    Dlq(dlq::DlqArgs),
    /// Show the live state of a pipeline
    Status(status::StatusArgs),
    /// Look at subscriptions of a push pipeline: active, flagged, purged; purge or undo
    Subscriptions(subscriptions::SubscriptionsArgs),
    /// Stop starting attempts of a pipeline; messages are still accepted
    Pause(pause::PauseArgs),
    /// Resume a paused pipeline
    Resume(resume::ResumeArgs),
    /// Probe now, or close the breaker of a pipeline by hand
    Breaker(breaker::BreakerArgs),
    /// Check a configuration and print what it implies
    Check(Box<check::CheckArgs>),
    /// Audit produced ids against an independent witness
    Audit(audit::AuditArgs),
    /// Print, check or explain the configuration
    Config(config::ConfigArgs),
    /// Print and verify a store of the embedded engine, without changing it
    Journal(journal::JournalArgs),
    /// Run a lab experiment: plots, an id audit and expected ranges for one claim
    Lab(lab::LabArgs),
    /// Check the signature of a webhook
    Webhook(webhook::WebhookArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
}

/// Runs the given command.
pub fn run(cli: &Cli, out: &mut Output) -> Result<Exit, Failed> {
    let global = &cli.global;
    match &cli.command {
        Command::Demo(args) => demo::run(args, global, out),
        Command::Processor(args) => processor::run(args, global, out),
        Command::Producer(args) => producer::run(args, global, out),
        Command::Downstream(args) => downstream::run(args, global, out),
        Command::Send(args) => send::run(args, global, out),
        Command::Message(args) => message::run(args, global, out),
        Command::Messages(args) => messages::run(args, global, out),
        Command::Dlq(args) => dlq::run(args, global, out),
        Command::Status(args) => status::run(args, global, out),
        Command::Subscriptions(args) => subscriptions::run(args, global, out),
        Command::Pause(args) => pause::run(args, global, out),
        Command::Resume(args) => resume::run(args, global, out),
        Command::Breaker(args) => breaker::run(args, global, out),
        Command::Check(args) => check::run(args, global, out),
        Command::Audit(args) => audit::run(args, global, out),
        Command::Config(args) => config::run(args, global, out),
        Command::Journal(args) => journal::run(args, global, out),
        Command::Lab(args) => lab::run(args, out),
        Command::Webhook(args) => webhook::run(args, out),
        Command::Completions(args) => completions::run(args, &mut Cli::command(), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
