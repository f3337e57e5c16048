//! `redrive dlq`: inspects, replays, discards, exports and imports dead letters.

mod discard;
mod edit;
mod edit_jq;
mod editor;
mod erase;
mod export;
mod groups;
mod import;
mod inspect;
mod jq;
mod jq_process;
mod jq_worker;
mod lesson;
mod redact;
mod replay;
mod replays;
mod selection;
mod show;
mod stats;

pub use redact::hide_secret_headers;
pub use selection::{Selection, expression, moment, moment_at};
pub use show::timeline;

use crate::args::Global;
use crate::client::with_api;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct DlqArgs {
    /// None: a lesson
    #[command(subcommand)]
    pub action: Option<DlqAction>,
}

#[derive(Debug, clap::Subcommand)]
pub enum DlqAction {
    /// Count letters by cause, show one group, or record a decision about it
    Groups(groups::GroupsArgs),
    /// List dead letters, the first to die first
    Inspect(inspect::InspectArgs),
    /// Show one letter: every attempt, the payload, the headers
    Show(show::ShowArgs),
    /// Replay letters at a limited rate, each once, and follow the job to its end
    Replay(replay::ReplayArgs),
    /// List replay jobs, show, pause, resume or end one
    Replays(replays::ReplaysArgs),
    /// Change letters by rule or in $EDITOR, with a dry run, and undo it; the originals are kept
    Edit(edit::EditArgs),
    /// Discard letters that are not needed; a discard can be undone for a while
    Discard(discard::DiscardArgs),
    /// Take a discard back
    Undo(discard::UndoArgs),
    /// Erase the content of letters for good: payload, headers and error texts; a tombstone stays
    Erase(erase::EraseArgs),
    /// Delete resolved letters from the topics of a Kafka pipeline now
    Compact(erase::CompactArgs),
    /// Write letters with their payloads as NDJSON to stdout
    Export(export::ExportArgs),
    /// Bring in the dead letters of another framework, from its topic, or letters from a file
    Import(import::ImportArgs),
    /// Count the dead letters of a pipeline by state, reason and class
    Stats(stats::StatsArgs),
    /// Runs a jq program for `dlq edit --jq`
    #[command(hide = true)]
    JqWorker,
}

pub fn run(args: &DlqArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let Some(action) = &args.action else { return lesson::run(out) };
    if matches!(action, DlqAction::JqWorker) {
        return jq_worker::run();
    }
    with_api(global, out, async |session, out| match action {
        DlqAction::Groups(args) => groups::run(args, session, out).await,
        DlqAction::Inspect(args) => inspect::run(args, session, out).await,
        DlqAction::Show(args) => show::run(args, session, out).await,
        DlqAction::Replay(args) => replay::run(args, session, out).await,
        DlqAction::Replays(args) => replays::run(args, session, out).await,
        DlqAction::Edit(args) => edit::run(args, session, out).await,
        DlqAction::Discard(args) => discard::discard(args, session, out).await,
        DlqAction::Undo(args) => discard::undo(args, session, out).await,
        DlqAction::Erase(args) => erase::erase(args, session, out).await,
        DlqAction::Compact(args) => erase::compact(args, session, out).await,
        DlqAction::Export(args) => export::run(args, session, out).await,
        DlqAction::Import(args) => import::run(args, global, session, out).await,
        DlqAction::Stats(args) => stats::run(args, session, out).await,
        DlqAction::JqWorker => jq_worker::run(),
    })
}
