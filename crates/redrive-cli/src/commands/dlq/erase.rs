//! `redrive dlq erase` and `redrive dlq compact`.

use redrive_api::{Erase, EraseAnswer, Erased, WouldErase};

use super::Selection;
use crate::client::Session;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, safe};

#[derive(Debug, clap::Args)]
pub struct EraseArgs {
    /// The pipeline
    pub pipeline: String,
    #[command(flatten)]
    pub selection: Selection,
    /// Why; kept in the tombstones and in the action log
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Count what would be erased, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub struct CompactArgs {
    /// The pipeline
    pub pipeline: String,
}

pub async fn erase(args: &EraseArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let reason = args.reason.trim();
    if reason.is_empty() {
        return Err(Failed::usage("--reason is empty").hint("give a short reason"));
    }
    let erase = Erase {
        reason: Some(reason.to_owned()),
        dry_run: args.dry_run,
        ..Erase::about(args.selection.letters("erase", session.now())?)
    };
    let answer = session.api.erase(&args.pipeline, &erase).await.map_err(|fault| {
        if args.dry_run { fault.into() } else { fault.of_change(|| how_to_look(&args.pipeline)) }
    })?;
    let (would_erase, view) = match answer.view {
        EraseAnswer::Would(WouldErase { would_erase, in_replay, already }) => {
            (Some(would_erase), Erased { in_replay, already, ..Erased::default() })
        }
        EraseAnswer::Done(erased) => (None, erased),
    };
    // The request is not complete while a letter is in a replay or copies are left.
    let exit = if view.in_replay > 0 || view.parts_left > 0 { Exit::Bad } else { Exit::Ok };
    if out.is_json() {
        out.json(&answer.json)?;
    }
    let which = if args.selection.all { "open letter" } else { "letter" };
    let letters = would_erase.unwrap_or(view.erased) + view.already + view.in_replay;
    if letters == 0 {
        return Err(args.selection.nothing_selected(None, which, &args.pipeline, session).await);
    }
    if out.is_json() {
        return Ok(exit);
    }
    let already =
        if view.already > 0 { format!("   erased before {}", count(view.already)) } else { String::new() };
    if let Some(letters) = would_erase {
        let line = format!(
            "would erase {}{already}   for good: payload, headers, key, tenant and error texts; letters only",
            count(letters)
        );
        out.line(&line)?;
    } else {
        let erased = count(view.erased);
        out.line(&format!("erased {erased}{already}   (for good; letters only; tombstones stay)"))?;
    }
    if view.in_replay > 0 {
        let line = "in a replay: wait until it ends, or abort it, and erase them again";
        out.line(&format!("  not erased {}   {line}", count(view.in_replay)))?;
    }
    if view.parts_left > 0 {
        let line = "parts of the storage are still being overwritten; this continues by itself, also after a restart";
        out.line(&format!("  {} {line}", count(view.parts_left)))?;
    }
    print_remains(&view.remains, out)?;
    Ok(exit)
}

fn how_to_look(pipeline: &str) -> String {
    format!(
        "the letters may be erased, all or some: `redrive audit {pipeline} --actions` shows what was done; repeat the command \
         to be sure: erased letters are counted as `erased before`, or no longer match a filter; if it finds no letter (exit 2), \
         all are erased"
    )
}

pub async fn compact(args: &CompactArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.compact(&args.pipeline).await?;
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    out.line(&format!("deleted {} records of letters that are done", count(answer.view.deleted)))?;
    print_remains(&answer.view.remains, out)?;
    Ok(Exit::Ok)
}

fn print_remains(remains: &[String], out: &mut Output) -> Result<(), Failed> {
    if remains.is_empty() {
        return Ok(());
    }
    out.line("  copies that Redrive cannot overwrite stay for a while:")?;
    remains.iter().try_for_each(|what| out.line(&format!("    {}", safe::line(what))))
}
