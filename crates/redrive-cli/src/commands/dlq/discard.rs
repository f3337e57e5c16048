//! `redrive dlq discard` and `redrive dlq undo`.

use redrive_api::Discard;

use super::Selection;
use super::selection::say_not_open;
use crate::client::{ApiAnswer, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, instant};

#[derive(Debug, clap::Args)]
pub struct DiscardArgs {
    /// The pipeline
    pub pipeline: String,
    #[command(flatten)]
    pub selection: Selection,
    /// Why; kept with the letters and in the action log
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Count what would be discarded, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub struct UndoArgs {
    /// The pipeline
    pub pipeline: String,
    /// The discard, as in d-9
    pub discard: String,
}

pub async fn discard(args: &DiscardArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let reason = args.reason.trim();
    if reason.is_empty() {
        return Err(Failed::usage("--reason is empty").hint("give the reason for discarding, in a few words"));
    }
    let discard = Discard {
        reason: Some(reason.to_owned()),
        dry_run: args.dry_run,
        ..Discard::about(args.selection.letters("discard", session.now())?)
    };
    if args.dry_run {
        let answer = session.api.would_discard(&args.pipeline, &discard).await?;
        let letters = answer.view.would_discard;
        if out.is_json() {
            out.json(&answer.json)?;
        }
        let mut not_open = !answer.view.not_open.is_empty();
        if !not_open {
            args.selection.fail_if_empty(letters, "open letter", &args.pipeline)?;
        }
        if !out.is_json() {
            out.line(&format!("would discard {}", count(letters)))?;
            not_open = say_not_open(&answer.view.not_open, "discarded", out)?;
        }
        return Ok(if not_open { Exit::Bad } else { Exit::Ok });
    }
    let ApiAnswer { json, view } = session.api.discard(&args.pipeline, &discard).await?;
    if out.is_json() {
        out.json(&json)?;
    }
    if view.not_open.is_empty() {
        args.selection.fail_if_empty(view.discarded, "open letter", &args.pipeline)?;
    }
    if out.is_json() {
        return Ok(if view.not_open.is_empty() { Exit::Ok } else { Exit::Bad });
    }
    let undo = view.id.map(|id| {
        let until = view.undo_until.map(|at| format!(" until {}", instant::date(at.0))).unwrap_or_default();
        format!("   (kept as tombstones, undo{until}: redrive dlq undo {} {id})", args.pipeline)
    });
    out.line(&format!("discarded {}{}", count(view.discarded), undo.unwrap_or_default()))?;
    let not_open = say_not_open(&view.not_open, "discarded", out)?;
    Ok(if not_open { Exit::Bad } else { Exit::Ok })
}

pub async fn undo(args: &UndoArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.undo(&args.pipeline, &args.discard).await?;
    if out.is_json() {
        out.json(&answer.json)?;
    } else {
        out.line(&format!("restored {}   (open again)", count(answer.view.restored)))?;
    }
    Ok(Exit::Ok)
}
