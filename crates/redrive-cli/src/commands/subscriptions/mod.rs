//! `redrive subscriptions`: which endpoints of a push pipeline are active, and how to handle the others.

mod change;
mod list;

use crate::args::Global;
use crate::client::with_api;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct SubscriptionsArgs {
    /// The pipeline; shows how many subscriptions are active, flagged and purged
    pub pipeline: Option<String>,
    #[command(subcommand)]
    pub action: Option<SubscriptionsAction>,
}

#[derive(Debug, clap::Subcommand)]
pub enum SubscriptionsAction {
    /// List stored subscriptions, and endpoints that are flagged or purged
    List(list::ListArgs),
    /// Show one endpoint, by its hash or the id of its subscription
    Show(NamedEndpoint),
    /// Flag an endpoint to be watched; it is still called
    Flag(change::MarkArgs),
    /// Purge an endpoint: its messages become dead letters without a call
    Purge(change::MarkArgs),
    /// Take a flag or a purge back, or all purges since a time
    Undo(change::UndoArgs),
    /// Print all rows as NDJSON, with hashes and without endpoints
    Export(list::ExportArgs),
    /// Resume purging after the guard has stopped it
    Resume(Pipeline),
    /// Show how many stored subscriptions were made with which VAPID key
    Keys(Pipeline),
    /// Store a subscription under an id that messages can name
    Register(change::RegisterArgs),
    /// Remove a stored subscription
    Remove(NamedEndpoint),
}

#[derive(Debug, clap::Args)]
pub struct Pipeline {
    /// The pipeline
    pub pipeline: String,
}

#[derive(Debug, clap::Args)]
pub struct NamedEndpoint {
    /// The pipeline
    pub pipeline: String,
    /// A hash as in hmac-sha256:5bdcc146bf60754e, or the id of a stored subscription
    #[arg(value_name = "HASH|ID")]
    pub id: String,
}

/// The states of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum State {
    Active,
    Flagged,
    Purged,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Flagged => "flagged",
            Self::Purged => "purged",
        }
    }
}

pub fn run(args: &SubscriptionsArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    with_api(global, out, async |session, out| match (&args.action, &args.pipeline) {
        (Some(SubscriptionsAction::List(args)), _) => list::list(args, session, out).await,
        (Some(SubscriptionsAction::Show(args)), _) => list::show(args, session, out).await,
        (Some(SubscriptionsAction::Flag(args)), _) => change::mark(args, "flag", session, out).await,
        (Some(SubscriptionsAction::Purge(args)), _) => change::mark(args, "purge", session, out).await,
        (Some(SubscriptionsAction::Undo(args)), _) => change::undo(args, session, out).await,
        (Some(SubscriptionsAction::Export(args)), _) => list::export(args, session, out).await,
        (Some(SubscriptionsAction::Resume(args)), _) => change::resume(&args.pipeline, session, out).await,
        (Some(SubscriptionsAction::Keys(args)), _) => list::keys(&args.pipeline, session, out).await,
        (Some(SubscriptionsAction::Register(args)), _) => change::register(args, session, out).await,
        (Some(SubscriptionsAction::Remove(args)), _) => change::remove(args, session, out).await,
        (None, Some(pipeline)) => list::summary(pipeline, session, out).await,
        (None, None) => Err(Failed::usage("name a pipeline").hint("as in: redrive subscriptions push")),
    })
}
