//! `redrive audit`: what became of every produced id, by an independent witness; and who did what.
//!
//! - `ids` and `roll`: the produced ids, one byte of knowledge each
//! - `witness`, `postgres`, `stub`: who saw the effects
//! - `gather`: asks the witness and the processor
//! - `reconcile`: the reckoning, pure
//! - `report`: how it is printed
//! - `actions`: the action log

mod actions;
mod gather;
mod ids;
mod postgres;
mod reconcile;
mod report;
mod roll;
mod stub;
mod witness;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use roll::Roll;
use witness::Witness;

use crate::args::Global;
use crate::client::{Session, with_api};
use crate::exit::{Exit, Failed};
use crate::output::Output;

/// How many missing ids are named without `--json`.
const NAMED: usize = 20;
/// How many missing ids `--json` names.
const NAMED_JSON: usize = 1_000_000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pipeline
    pub pipeline: String,
    /// Who saw the effects: postgres://… with a table `applied`, or http://… of `redrive downstream`
    #[arg(long, value_name = "URL", required_unless_present = "actions")]
    pub applied: Option<String>,
    /// A table with one row per effect, to find effects that happened twice (with postgres://…)
    #[arg(long, value_name = "TABLE", requires = "applied")]
    pub effects: Option<String>,
    /// The produced ids: o-0..o-9999, both included, or a list with commas
    #[arg(long, value_name = "IDS", conflicts_with = "ids_file", required_unless_present_any = ["ids_file", "actions"])]
    pub ids: Option<String>,
    /// A file with the produced ids, one per line; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub ids_file: Option<PathBuf>,
    /// Print who did what instead
    #[arg(long, conflicts_with_all = ["applied", "ids", "ids_file", "effects"])]
    pub actions: bool,
    /// With --actions: those since 1h ago, or since an instant in RFC 3339
    #[arg(long, value_name = "AGE|TIME", requires = "actions")]
    pub since: Option<String>,
}

pub fn run(args: &Args, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    if args.actions {
        return with_api(global, out, async |session, out| {
            actions::run(&args.pipeline, args.since.as_deref(), session, out).await
        });
    }
    // What is wrong with the command line is said before anybody is asked.
    let witness = args.applied.as_deref().unwrap_or_default().parse::<Witness>()?;
    let roll = produced(args)?;
    with_api(global, out, async |session, out| audit(args, roll, &witness, session, out).await)
}

async fn audit(
    args: &Args,
    mut roll: Roll,
    witness: &Witness,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let seen =
        gather::gather(&args.pipeline, &mut roll, witness, args.effects.as_deref(), session, out).await?;
    let named = if out.is_json() { NAMED_JSON } else { NAMED };
    let reckoning = reconcile::reconcile(&roll, named);
    report::write(&report::Report { pipeline: &args.pipeline, reckoning: &reckoning, seen: &seen }, out)?;
    Ok(if reckoning.is_good() { Exit::Ok } else { Exit::Bad })
}

fn produced(args: &Args) -> Result<Roll, Failed> {
    let roll = match (&args.ids, &args.ids_file) {
        (Some(text), _) => ids::parse(text),
        (None, Some(path)) if path == Path::new("-") => ids::read("stdin", io::stdin().lock()),
        (None, Some(path)) => {
            let name = path.display().to_string();
            match File::open(path) {
                Ok(file) => ids::read(&name, BufReader::new(file)),
                Err(error) => Err(ids::IdsFault::Unreadable { name, error }),
            }
        }
        (None, None) => Err(ids::IdsFault::None),
    };
    roll.map_err(|fault| Failed::usage(fault.to_string()))
}
