//! `redrive journal`: prints and verifies a store of the embedded engine. Reads only; a running owner is no hindrance.

use std::path::{Path, PathBuf};

use redrive::engine::EngineError;
use redrive::engine::embedded::inspect::{self, Inspection, LogInspection};
use redrive_core::nearest::nearest;
use serde_json::{Value, json};

use crate::args::Global;
use crate::config::load::FILE_DEFAULT;
use crate::config::{Config, EngineKind, ProcessorFlags};
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, Style, Table, bytes, count};

/// More damage than this is counted and not listed.
const DAMAGE_LISTED_MAX: usize = 100;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory of the embedded engine; that of the configuration unless given
    pub dir: Option<PathBuf>,
    /// Only the store of this pipeline
    #[arg(long, value_name = "NAME")]
    pub pipeline: Option<String>,
    /// Print every frame too: position, kind, number and id; never a payload
    #[arg(long)]
    pub frames: bool,
}

pub fn run(args: &Args, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => configured(global, out)?,
    };
    if !dir.join("FORMAT").exists() {
        let problem = format!("{}: this is no directory of the embedded engine", dir.display());
        return Err(Failed::usage(problem).hint("it has a file FORMAT, and a directory for each pipeline"));
    }
    let all = inspect::pipelines(&dir).map_err(|error| cannot_read(&error))?;
    let stores = match &args.pipeline {
        Some(name) if all.contains(name) => vec![name.clone()],
        Some(name) => return Err(no_store(&dir, name, &all)),
        None => all,
    };
    if stores.is_empty() {
        out.note(&format!("{}: there is no store of any pipeline in it", dir.display()));
    }
    let mut inspections = Vec::new();
    for (i, name) in stores.iter().enumerate() {
        if i > 0 && !out.is_json() {
            out.line("")?;
        }
        let inspection = read(&dir, name, args.frames, out)?;
        if !out.is_json() {
            print(&inspection, out)?;
        }
        inspections.push(inspection);
    }
    let damaged = inspections.iter().any(Inspection::is_damaged);
    if out.is_json() {
        let stores: Vec<Value> = inspections.iter().map(to_json).collect();
        out.json(&json!({"dir": dir.display().to_string(), "damaged": damaged, "stores": stores}))?;
    }
    Ok(if damaged { Exit::Bad } else { Exit::Ok })
}

fn configured(global: &Global, out: &mut Output) -> Result<PathBuf, Failed> {
    if global.config.is_none() && !Path::new(FILE_DEFAULT).exists() {
        let problem = format!("there is no {FILE_DEFAULT} here that says where the store is");
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
        let line = if json {
            json!({"log": log, "position": position, "kind": kind, "number": number, "bytes": bytes, "id": id})
                .to_string()
        } else {
            let id = id.map(|id| format!("  {id}")).unwrap_or_default();
            format!("{log:<7} {position:>12}  {kind:<12} {number:>10} {bytes:>9} B{id}")
        };
        stopped = out.line(&line).err();
    };
    let inspection = inspect::inspect(dir, pipeline, &mut each).map_err(|error| cannot_read(&error))?;
    match stopped {
        Some(failed) => Err(failed),
        None => Ok(inspection),
    }
}

fn print(inspection: &Inspection, out: &mut Output) -> Result<(), Failed> {
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
    let letters: Vec<String> = ["open", "replaying", "succeeded", "discarded"]
        .iter()
        .map(|state| format!("{state} {}", count(inspection.letters.get(state).copied().unwrap_or(0))))
        .collect();
    out.line(&format!("letters     {}", letters.join(" · ")))?;
    if inspection.is_damaged() {
        let mark = out.paint(Style::Error, "✗");
        return out.line(&format!(
            "{mark} damage was found; opening the store keeps what is whole and parks the rest as `corrupt`"
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
            Table::new([("  KIND", Align::Left), ("FRAMES", Align::Right), ("BYTES", Align::Right)]);
        for (kind, (frames, size)) in &log.frames {
            table.row([format!("  {kind}"), count(*frames), count(*size)]);
        }
        out.table(&table)?;
    }
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

fn to_json(inspection: &Inspection) -> Value {
    let log = |log: &LogInspection| {
        let damage: Vec<Value> = log
            .damage
            .iter()
            .map(|damage| {
                json!({"segment": damage.segment, "position": damage.position, "offset": damage.offset,
                       "bytes": damage.bytes, "kind": damage.was.map(|was| was.0), "number": damage.was.map(|was| was.1)})
            })
            .collect();
        let segments: Vec<Value> = log
            .segments
            .iter()
            .map(|segment| {
                json!({"name": segment.name, "base": segment.base, "bytes": segment.bytes, "frames": segment.frames})
            })
            .collect();
        let frames: serde_json::Map<String, Value> = log
            .frames
            .iter()
            .map(|(kind, (frames, bytes))| ((*kind).to_owned(), json!({"frames": frames, "bytes": bytes})))
            .collect();
        let missing: Vec<Value> =
            log.missing.iter().map(|range| json!({"from": range.start, "to": range.end})).collect();
        json!({"segments": segments, "frames": frames, "batches": log.batches, "damage": damage, "missing": missing,
               "unfinished_bytes": log.unfinished_bytes, "leftovers": log.leftovers, "start": log.start, "end": log.end})
    };
    json!({
        "pipeline": inspection.pipeline,
        "path": inspection.path.display().to_string(),
        "format": inspection.format,
        "id": inspection.store_id,
        "owner": inspection.owner,
        "damaged": inspection.is_damaged(),
        "journal": log(&inspection.journal),
        "letter_log": log(&inspection.letter_log),
        "pending": inspection.pending,
        "letters": inspection.letters,
    })
}
