//! `redrive journal`: prints and verifies a store of the embedded engine. Read-only, even while a processor owns the
//! store; except with `--accept-loss`, which gives up missing data so that the store opens again.

mod inspected;
mod removed;

use std::ops::Range;
use std::path::{Path, PathBuf};

use redrive::actions::{Action, ActionError, ActionKind, Actions};
use redrive::internal::engine::EngineError;
use redrive::internal::engine::embedded::accept;
use redrive::internal::engine::embedded::inspect::{self, Inspection, LogInspection};
use redrive::internal::subscriptions::check;
use redrive::{Clock as _, Embedded, WallClock};
use redrive_core::nearest::nearest;
use serde_json::{Value, json};

use crate::args::Global;
use crate::config::load::FILE_DEFAULT;
use crate::config::{Config, EngineKind, ProcessorFlags};
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, Style, TextTable, bytes, count, safe};
use crate::service::engine_failed::engine_failed;
use inspected::Inspected;
use removed::Removed;

/// The actor recorded for an accepted loss: any user who may write the directory.
const ACTOR: &str = "journal";
/// More damage than this is counted but not listed.
const DAMAGE_LISTED_MAX: usize = 100;

#[derive(Debug, clap::Args)]
pub struct JournalArgs {
    /// The directory of the embedded engine; default: that of the configuration
    pub dir: Option<PathBuf>,
    /// Only the store of this pipeline
    #[arg(long, value_name = "NAME")]
    pub pipeline: Option<String>,
    /// Print every frame too: position, kind, number and id; never a payload
    #[arg(long)]
    pub frames: bool,
    /// Read the index too, and print only what is wrong; exit 1 if anything is
    #[arg(long, conflicts_with = "frames")]
    pub verify: bool,
    /// Give up what is missing, so that the store opens again without it; recorded in the action log
    #[arg(long, requires = "pipeline", conflicts_with_all = ["frames", "verify"])]
    pub accept_loss: bool,
}

pub fn run(args: &JournalArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => configured(global, out)?,
    };
    if !dir.join("FORMAT").exists() {
        let problem = format!("{}: this is not a directory of the embedded engine", dir.display());
        return Err(Failed::usage(problem).hint("it has a file FORMAT, and a directory for each pipeline"));
    }
    let all = inspect::pipelines(&dir).map_err(|error| cannot_read(&error))?;
    if let Some(pipeline) = args.pipeline.as_ref().filter(|_| args.accept_loss) {
        return accept(&dir, pipeline, out);
    }
    let mut removed = removed::removed(&dir);
    let stores = match &args.pipeline {
        Some(name) => {
            removed.retain(|store| store.pipeline == *name);
            if removed.is_empty() && !all.contains(name) {
                return Err(no_store(&dir, name, &all));
            }
            all.into_iter().filter(|store| store == name).collect()
        }
        None => all,
    };
    if stores.is_empty() && removed.is_empty() {
        out.note(&format!("{}: there is no store of any pipeline in it", dir.display()));
    }
    let mut inspections = Vec::new();
    for (i, name) in stores.iter().enumerate() {
        if i > 0 && !out.is_json() && !args.verify {
            out.line("")?;
        }
        let mut inspection = read(&dir, name, args.frames, out)?;
        if args.verify {
            inspection.index = inspect::check_index(&dir, name);
        }
        let subscriptions = check::check(&inspection.path).map_err(|error| {
            cannot_read(&EngineError::Storage(format!("{}: {error}", inspection.path.display())))
        })?;
        let inspected = Inspected { store: inspection, subscriptions };
        match (out.is_json(), args.verify) {
            (true, _) => {}
            (false, true) => print_verified(&inspected, out)?,
            (false, false) => print(&inspected, out)?,
        }
        inspections.push(inspected);
    }
    let damaged = !removed.is_empty() || inspections.iter().any(Inspected::is_damaged);
    if out.is_json() {
        let stores: Vec<Value> = inspections.iter().map(Inspected::to_json).collect();
        let removed: Vec<Value> = removed.iter().map(Removed::to_json).collect();
        out.json(&json!({
            "dir": dir.display().to_string(), "damaged": damaged, "stores": stores, "removed": removed,
        }))?;
    } else {
        print_removed(&removed, out)?;
    }
    Ok(if damaged { Exit::Bad } else { Exit::Ok })
}

fn print_removed(removed: &[Removed], out: &mut Output) -> Result<(), Failed> {
    for store in removed {
        let [what, fix] = store.lines();
        let mark = out.paint(Style::Error, "✗");
        out.line(&format!("{mark} {}", safe::line(&what)))?;
        out.line(&safe::line(&fix))?;
    }
    Ok(())
}

fn configured(global: &Global, out: &mut Output) -> Result<PathBuf, Failed> {
    if global.config.is_none() && !Path::new(FILE_DEFAULT).exists() {
        let problem = format!("there is no {FILE_DEFAULT} here to locate the store");
        return Err(Failed::usage(problem)
            .hint("name its directory: redrive journal DIR; or its configuration: --config FILE"));
    }
    let config = Config::load(global, &ProcessorFlags::default(), out)?;
    match config.engine.kind {
        EngineKind::Embedded => Ok(config.engine.dir),
        kind => Err(Failed::usage(format!("the engine is {}, which has no journal of ours", kind.name()))
            .hint("name the directory of an embedded engine: redrive journal DIR")),
    }
}

fn no_store(dir: &Path, name: &str, all: &[String]) -> Failed {
    let failed = Failed::usage(format!("{}: there is no store of a pipeline `{name}`", dir.display()));
    match nearest(name, all.iter().map(String::as_str)) {
        Some(near) => failed.hint(format!("did you mean `{near}`?")),
        None if all.is_empty() => failed.hint("there is no store of any pipeline in it"),
        None => failed.hint(format!("there are {}", all.join(", "))),
    }
}

fn cannot_read(error: &EngineError) -> Failed {
    Failed::new(Exit::Storage, error.to_string()).hint("nothing was changed")
}

fn read(dir: &Path, pipeline: &str, frames: bool, out: &mut Output) -> Result<Inspection, Failed> {
    let mut stopped: Option<Failed> = None;
    let json = out.is_json();
    let mut each = |entry: inspect::Entry| {
        if !frames || stopped.is_some() {
            return;
        }
        let inspect::Entry { log, position, kind, number, bytes, id } = entry;
        let written = if json {
            out.json(&json!({"log": log, "position": position, "kind": kind, "number": number, "bytes": bytes, "id": id}))
        } else {
            let id = id.map(|id| format!("  {}", safe::line(&id))).unwrap_or_default();
            out.line(&format!("{log:<7} {position:>12}  {kind:<12} {number:>10} {bytes:>9} B{id}"))
        };
        stopped = written.err();
    };
    let inspection = inspect::inspect(dir, pipeline, &mut each).map_err(|error| cannot_read(&error))?;
    match stopped {
        Some(failed) => Err(failed),
        None => Ok(inspection),
    }
}

/// Gives up missing data of a pipeline's store, and records that.
fn accept(dir: &Path, pipeline: &str, out: &mut Output) -> Result<Exit, Failed> {
    let loss = accept::accept_loss(dir, pipeline).map_err(|error| engine_failed(&error))?;
    let lines = drop_damaged_lines(dir, pipeline).map_err(|error| engine_failed(&error))?;
    if loss.is_nothing() && lines == 0 {
        out.note(&format!("{pipeline}: nothing is missing, so nothing was changed"));
        return Ok(Exit::Ok);
    }
    let recorded = |error: ActionError| {
        Failed::new(Exit::Storage, format!("the loss was accepted, but not recorded: {error}"))
    };
    let actions = Actions::open(Some(dir)).map_err(recorded)?;
    let mut action = Action::new(WallClock.now(), ACTOR, ActionKind::AcceptLoss, pipeline);
    action.letters = loss.letters_max;
    let lost_lines = (lines > 0).then(|| format!("{lines} damaged lines of subscriptions.log"));
    let lost = (!loss.is_nothing()).then(|| loss.to_string()).into_iter().chain(lost_lines);
    let lost = lost.collect::<Vec<_>>().join("; ");
    action.note = Some(lost.clone());
    actions.record_now(&action).map_err(recorded)?;
    if out.is_json() {
        let ranges = |ranges: &[Range<u64>]| -> Vec<Value> {
            ranges.iter().map(|range| json!({"from": range.start, "to": range.end})).collect()
        };
        out.json(&json!({
            "pipeline": pipeline, "lost": lost, "subscription_lines": lines, "journal": ranges(&loss.journal),
            "letter_log": ranges(&loss.letters), "messages_max": loss.messages_max, "letters_max": loss.letters_max,
        }))?;
    } else {
        out.line(&format!("{pipeline}: accepted as lost: {lost}"))?;
        out.line("recorded in the action log; the store opens again")?;
    }
    Ok(Exit::Ok)
}

/// Gives up the damaged lines of the log of subscriptions; returns how many there were.
fn drop_damaged_lines(dir: &Path, pipeline: &str) -> Result<u64, EngineError> {
    // Locks the directory, so that no other process writes the log.
    let _owned = Embedded::open(dir)?;
    check::drop_damaged(&dir.join(pipeline))
}

/// Prints only problems.
fn print_verified(inspected: &Inspected, out: &mut Output) -> Result<(), Failed> {
    let inspection = &inspected.store;
    let logs = [("journal", &inspection.journal), ("letter log", &inspection.letter_log)];
    let bytes_read: u64 = logs.iter().flat_map(|(_, log)| &log.segments).map(|segment| segment.bytes).sum();
    let bytes_read = bytes_read + inspected.subscriptions.as_ref().map_or(0, |found| found.bytes);
    let store = inspection.path.display();
    if !inspected.is_damaged() {
        let mark = out.paint(Style::Good, "✓");
        return out.line(&format!("{mark} {store}: {} verified", bytes(bytes_read)));
    }
    let mark = out.paint(Style::Error, "✗");
    out.line(&format!("{mark} {store}: {} read", bytes(bytes_read)))?;
    for (name, log) in logs {
        if !log.damage.is_empty() || !log.missing.is_empty() {
            out.line(&format!("  {name}"))?;
            print_wrong(log, out)?;
        }
    }
    print_others(inspected, out)
}

/// Prints problems outside the logs.
fn print_others(inspected: &Inspected, out: &mut Output) -> Result<(), Failed> {
    let inspection = &inspected.store;
    if let Some(found) = inspected.subscriptions.as_ref().filter(|found| found.damaged > 0) {
        for damage in &found.damage {
            let line = format!(
                "  damage in {} at offset {} (line {}), {} bytes: it is skipped, and endpoints that it may have been about are called again",
                safe::line(&found.path.display().to_string()),
                damage.offset,
                damage.line,
                damage.bytes
            );
            out.line(&out.paint(Style::Error, &line))?;
        }
        let more = found.damaged - found.damage.len() as u64;
        if more > 0 {
            out.line(&format!("  and {} more lines", count(more)))?;
        }
    }
    if let Some(what) = inspection.watermark {
        out.line(&out.paint(Style::Error, &format!("  {what}")))?;
    }
    if let Some(what) = &inspection.index {
        out.line(&out.paint(Style::Error, &format!("  {what}; its owner rebuilds it from the logs")))?;
    }
    Ok(())
}

fn print(inspected: &Inspected, out: &mut Output) -> Result<(), Failed> {
    let inspection = &inspected.store;
    let head = format!(
        "store {} · format {} · id {}",
        inspection.path.display(),
        inspection.format,
        inspection.store_id
    );
    out.line(&head)?;
    if let Some(owner) = inspection.owner {
        out.line(&format!("  in use by process {owner}; its end may be moving while this is read"))?;
    }
    print_log("journal", &inspection.journal, out)?;
    print_log("letter log", &inspection.letter_log, out)?;
    out.line(&format!("pending     {}", count(inspection.pending)))?;
    let letters: Vec<String> = ["open", "replaying", "succeeded", "discarded", "erased"]
        .iter()
        .map(|state| format!("{state} {}", count(inspection.letters.get(state).copied().unwrap_or(0))))
        .collect();
    out.line(&format!("letters     {}", letters.join(" · ")))?;
    if let Some(found) = &inspected.subscriptions {
        let (lines, size) = (count(found.lines), bytes(found.bytes));
        out.line(&format!("subscriptions  {lines} lines · {size}"))?;
    }
    print_others(inspected, out)?;
    let mark = out.paint(Style::Error, "✗");
    let missing = [&inspection.journal, &inspection.letter_log].iter().any(|log| !log.missing.is_empty());
    if missing || inspection.watermark.is_some() {
        return out.line(&format!(
            "{mark} something is missing; the store does not open until it is restored from a backup, or the loss is \
             accepted: `redrive journal --pipeline {} --accept-loss`",
            inspection.pipeline
        ));
    }
    if inspection.is_damaged() {
        return out.line(&format!(
            "{mark} damage was found; opening the store keeps what is whole and parks the rest as `corrupt`"
        ));
    }
    if inspected.damaged_lines() > 0 {
        return out.line(&format!(
            "{mark} damage was found in subscriptions.log; `redrive journal --pipeline {} --accept-loss` removes the \
             damaged lines",
            inspection.pipeline
        ));
    }
    let mark = out.paint(Style::Good, "✓");
    out.line(&format!("{mark} every frame is whole"))
}

fn print_log(name: &str, log: &LogInspection, out: &mut Output) -> Result<(), Failed> {
    let size: u64 = log.segments.iter().map(|segment| segment.bytes).sum();
    let segments = log.segments.len();
    out.line(&format!(
        "{name:<11} {segments} {} · {} · positions {} to {} · {} batches",
        if segments == 1 { "segment" } else { "segments" },
        bytes(size),
        log.start,
        log.end,
        count(log.batches),
    ))?;
    if !log.frames.is_empty() {
        let mut table =
            TextTable::new([("  KIND", Align::Left), ("FRAMES", Align::Right), ("BYTES", Align::Right)]);
        for (kind, (frames, size)) in &log.frames {
            table.row([format!("  {kind}"), count(*frames), count(*size)]);
        }
        out.table(&table)?;
    }
    print_wrong(log, out)?;
    if log.unfinished_bytes > 0 {
        out.line(&format!(
            "  {} unfinished bytes at the end; opening cuts them off",
            count(log.unfinished_bytes)
        ))?;
    }
    if log.leftovers > 0 {
        out.line(&format!("  {} given-up segments are still there; opening removes them", log.leftovers))?;
    }
    Ok(())
}

fn print_wrong(log: &LogInspection, out: &mut Output) -> Result<(), Failed> {
    for damage in log.damage.iter().take(DAMAGE_LISTED_MAX) {
        let was = match damage.was {
            Some((kind, number)) => format!("was {kind} of message {number}"),
            None => "what stood there is not known".to_owned(),
        };
        let line = format!(
            "  damage at position {} ({} offset {}), {} bytes: {was}",
            damage.position, damage.segment, damage.offset, damage.bytes
        );
        out.line(&out.paint(Style::Error, &line))?;
    }
    if log.damage.len() > DAMAGE_LISTED_MAX {
        out.line(&format!("  and {} more", count((log.damage.len() - DAMAGE_LISTED_MAX) as u64)))?;
    }
    for missing in &log.missing {
        out.line(
            &out.paint(Style::Error, &format!("  missing: positions {} to {}", missing.start, missing.end)),
        )?;
    }
    Ok(())
}
