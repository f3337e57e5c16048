//! `redrive messages`: lists waiting messages, makes them due or cancels them.

mod list;
mod steer;

use crate::args::Global;
use crate::client::with_api;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = false)]
pub struct MessagesArgs {
    /// The pipeline
    pub pipeline: String,
    #[command(flatten)]
    pub list: list::ListArgs,
    #[command(subcommand)]
    pub action: Option<MessagesAction>,
}

#[derive(Debug, clap::Subcommand)]
pub enum MessagesAction {
    /// Make waiting messages due now
    RetryNow(steer::SteerArgs),
    /// Turn waiting messages into dead letters with the reason `cancelled`
    Cancel(steer::SteerArgs),
}

/// The states of a message that is not terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum MessageStateArg {
    Ready,
    Held,
    Delayed,
    KeyWait,
    InFlight,
}

impl MessageStateArg {
    const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Held => "held",
            Self::Delayed => "delayed",
            Self::KeyWait => "key_wait",
            Self::InFlight => "in_flight",
        }
    }
}

pub fn run(args: &MessagesArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    with_api(global, out, async |session, out| match &args.action {
        None => list::run(&args.pipeline, &args.list, session, out).await,
        Some(_) if args.list.is_given() => {
            Err(Failed::usage("--state, --filter and --limit belong behind the command").hint(format!(
                "as in: redrive messages {} cancel --state held --filter tenant:acme --yes",
                args.pipeline
            )))
        }
        Some(MessagesAction::RetryNow(steered)) => {
            steer::run(&args.pipeline, steered, steer::RETRY, session, out).await
        }
        Some(MessagesAction::Cancel(steered)) => {
            steer::run(&args.pipeline, steered, steer::CANCEL, session, out).await
        }
    })
}
