//! `redrive dlq discard` and `redrive dlq undo`.

use redrive_api::{ActionView, Discard};
use serde::Deserialize as _;

use super::Selection;
use super::selection::say_not_open;
use crate::client::{ApiAnswer, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, instant, safe};

/// The most actions that are searched for an earlier undo.
const ACTIONS_MAX: u32 = 10_000;

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
        if !not_open && letters == 0 {
            return Err(nothing_selected(args, session).await);
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
    if view.not_open.is_empty() && view.discarded == 0 {
        return Err(nothing_selected(args, session).await);
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

async fn nothing_selected(args: &DiscardArgs, session: &Session) -> Failed {
    args.selection.nothing_selected(None, "open letter", &args.pipeline, session).await
}

pub async fn undo(args: &UndoArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.undo(&args.pipeline, &args.discard).await?;
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    match answer.view.restored {
        0 => out.line(&format!("restored 0   ({})", why_nothing(args, session).await))?,
        restored => out.line(&format!("restored {}   (open again)", count(restored)))?,
    }
    Ok(Exit::Ok)
}

/// Why an undo has restored nothing: it was done before, or something else became of the letters.
async fn why_nothing(args: &UndoArgs, session: &Session) -> String {
    let actions = session.api.actions(None, ACTIONS_MAX).await.map(|page| page.view.actions);
    let actions = actions.unwrap_or_default().into_iter();
    let is_undo = |action: &ActionView| {
        let is_of_it = action.id.as_ref() == Some(&args.discard)
            && action.pipeline.as_ref().is_none_or(|pipeline| *pipeline == args.pipeline);
        action.action == "undo" && is_of_it && action.letters.is_some_and(|letters| letters > 0)
    };
    let before = actions.filter_map(|action| ActionView::deserialize(action).ok()).find(is_undo);
    before.map_or_else(
        || "none of its letters is still discarded by it".to_owned(),
        |undo| format!("undone already, at {} by {}", instant::print(undo.at.0), safe::line(&undo.actor)),
    )
}
