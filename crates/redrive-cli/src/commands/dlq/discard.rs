//! `redrive dlq discard` and `redrive dlq undo`.

use std::collections::BTreeSet;

use redrive_api::{ActionView, Discard, Restored};
use serde::Deserialize as _;

use super::Selection;
use super::selection::say_not_open;
use crate::client::{ApiAnswer, ClientFault, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, instant, safe};

/// The maximum number of actions searched for a discard or an earlier undo.
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
#[command(allow_missing_positional = true)]
pub struct UndoArgs {
    /// The pipeline; the discard says it, unless several pipelines have one of that name
    pub pipeline: Option<String>,
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
            for taken in &answer.view.taken {
                let replay = safe::line(&taken.replay);
                let waits = if taken.letters == 1 { "waits" } else { "wait" };
                let letters = count(taken.letters);
                out.line(&format!(
                    "  {letters} of them {waits} in {replay}, which would skip what is discarded"
                ))?;
            }
            not_open = say_not_open(&answer.view.not_open, "discarded", out)?;
        }
        return Ok(if not_open { Exit::Bad } else { Exit::Ok });
    }
    let discarded = session.api.discard(&args.pipeline, &discard).await;
    let ApiAnswer { json, view } =
        discarded.map_err(|fault| fault.of_change(|| how_to_look(&args.pipeline)))?;
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
        format!("   (kept as tombstones, undo{until}: redrive dlq undo {id})")
    });
    out.line(&format!("discarded {}{}", count(view.discarded), undo.unwrap_or_default()))?;
    let not_open = say_not_open(&view.not_open, "discarded", out)?;
    Ok(if not_open { Exit::Bad } else { Exit::Ok })
}

fn how_to_look(pipeline: &str) -> String {
    format!(
        "the letters may be discarded, all or some: `redrive audit {pipeline} --actions` names the discard, `redrive dlq undo \
         ID` takes it back"
    )
}

async fn nothing_selected(args: &DiscardArgs, session: &Session) -> Failed {
    args.selection.nothing_selected(None, "open letter", &args.pipeline, session).await
}

pub async fn undo(args: &UndoArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let (pipeline, answer) = match &args.pipeline {
        Some(pipeline) => (pipeline.clone(), session.api.undo(pipeline, &args.discard).await?),
        None => undo_anywhere(&args.discard, session).await?,
    };
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    match answer.view.restored {
        0 => {
            out.line(&format!("restored 0   ({})", why_nothing(&pipeline, &args.discard, session).await))?;
        }
        restored => out.line(&format!("restored {}   (open again)", count(restored)))?,
    }
    Ok(Exit::Ok)
}

/// Undoes a discard in the pipeline that the action log names for it. If the log no longer lists it, tries all pipelines.
async fn undo_anywhere(discard: &str, session: &Session) -> Result<(String, ApiAnswer<Restored>), Failed> {
    let is_it = |action: &ActionView| action.action == "discard" && action.id.as_deref() == Some(discard);
    let known: BTreeSet<String> =
        actions(session).await.filter(is_it).filter_map(|action| action.pipeline).collect();
    let known: Vec<String> = known.into_iter().collect();
    if let [one, others @ ..] = known.as_slice() {
        if others.is_empty() {
            return Ok((one.clone(), session.api.undo(one, discard).await?));
        }
        let named: Vec<String> = known.iter().map(|pipeline| format!("`{}`", safe::line(pipeline))).collect();
        let discard = safe::line(discard);
        return Err(Failed::usage(format!(
            "several pipelines have a discard `{discard}`: {}",
            named.join(", ")
        ))
        .hint(format!("name the pipeline: redrive dlq undo {} {discard}", safe::line(one))));
    }
    let pipelines = session.api.pipelines().await?.view.pipelines;
    let mut refused = None;
    for pipeline in &pipelines {
        match session.api.undo(&pipeline.name, discard).await {
            Ok(answer) => return Ok((pipeline.name.clone(), answer)),
            Err(ClientFault::Refused(no)) if no.status == 404 => refused = Some(ClientFault::Refused(no)),
            Err(fault) => return Err(fault.into()),
        }
    }
    match refused {
        Some(_) if pipelines.len() > 1 => {
            Err(Failed::usage(format!("no pipeline has a discard `{}`", safe::line(discard)))
                .hint("`redrive audit PIPELINE --actions` lists the discards of a pipeline with their ids"))
        }
        Some(fault) => Err(fault.into()),
        None => Err(Failed::new(Exit::Bad, "the processor has no pipelines")),
    }
}

/// The latest actions; empty if they cannot be listed, since a token may be allowed to undo but not to read.
async fn actions(session: &Session) -> impl Iterator<Item = ActionView> {
    let actions = session.api.actions(None, None, ACTIONS_MAX).await.map(|page| page.view.actions);
    actions.unwrap_or_default().into_iter().filter_map(|action| ActionView::deserialize(action).ok())
}

/// Why an undo restored nothing: it was done before, or the letters changed since.
async fn why_nothing(pipeline: &str, discard: &str, session: &Session) -> String {
    let is_undo = |action: &ActionView| {
        let is_of_it =
            action.id.as_deref() == Some(discard) && action.pipeline.as_ref().is_none_or(|of| of == pipeline);
        action.action == "undo" && is_of_it && action.letters.is_some_and(|letters| letters > 0)
    };
    actions(session).await.find(is_undo).map_or_else(
        || "none of its letters is still discarded by it".to_owned(),
        |undo| format!("undone already, at {} by {}", instant::print(undo.at.0), safe::line(&undo.actor)),
    )
}
