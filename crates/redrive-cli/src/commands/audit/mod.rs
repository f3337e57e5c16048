//! `redrive audit`: the outcome of every produced id, checked with an independent witness; and the action log.
//!
//! - `ids` and `produced_ids`: the produced ids, with one byte of marks each
//! - `witness`, `postgres`, `stub`: sources that saw the effects
//! - `gather`: asks the witness and the processor; `kafka`: reads the topics, record by record
//! - `reconcile`: the reconciliation (pure)
//! - `report`: the output
//! - `actions`: the action log

mod actions;
mod gather;
mod ids;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(not(feature = "kafka"))]
#[path = "no_kafka.rs"]
mod kafka;
mod postgres;
mod produced_ids;
mod reconcile;
mod report;
mod stub;
mod witness;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use kafka::TopicRecords;
use produced_ids::ProducedIds;
use witness::AuditWitness;

use redrive::Time;

use super::dlq::moment_at;
use crate::args::Global;
use crate::client::{Session, block_on, wall_clock, with_api};
use crate::config::Environment;
use crate::config::load::{FILE_DEFAULT, load_text};
use crate::exit::{Exit, Failed};
use crate::output::Output;

/// The maximum number of missing ids printed without `--json`.
const NAMED: usize = 20;
/// The maximum number of missing ids printed with `--json`.
const NAMED_JSON: usize = 1_000_000;

#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    /// The pipeline
    pub pipeline: String,
    /// Witness to compare with: postgres://… (table `applied`), http(s)://… of `redrive downstream`, or a file with one id per line; optional on Kafka, where the positions of the pipeline in its topics are the proof without it
    #[arg(long, value_name = "URL")]
    pub applied: Option<String>,
    /// A table with one row per effect, to find effects that happened twice (with postgres://…)
    #[arg(long, value_name = "TABLE", requires = "applied")]
    pub effects: Option<String>,
    /// The produced ids: o-0..o-9999, both included, or a list with commas; on Kafka those of the source by default
    #[arg(long, value_name = "IDS", conflicts_with = "ids_file")]
    pub ids: Option<String>,
    /// A file with the produced ids, one per line; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub ids_file: Option<PathBuf>,
    /// Print who did what instead
    #[arg(long, conflicts_with_all = ["applied", "ids", "ids_file", "effects"])]
    pub actions: bool,
    /// Start of the range (1h = one hour ago, or RFC 3339): of actions with --actions, of produced records on Kafka
    #[arg(long, value_name = "AGE|TIME", allow_hyphen_values = true, conflicts_with_all = ["ids", "ids_file"])]
    pub since: Option<String>,
    /// End of the range, exclusive: of produced records on Kafka
    #[arg(long, value_name = "AGE|TIME", allow_hyphen_values = true, conflicts_with_all = ["actions", "ids", "ids_file"])]
    pub until: Option<String>,
}

/// The time range of production to audit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Within {
    pub since: Option<Time>,
    pub until: Option<Time>,
}

impl Within {
    fn of(args: &AuditArgs) -> Result<Self, Failed> {
        let now = wall_clock();
        let read = |flag: &str, text: &Option<String>| {
            text.as_deref().map(|text| moment_at(flag, text, now)).transpose()
        };
        let within = Self { since: read("--since", &args.since)?, until: read("--until", &args.until)? };
        match (within.since, within.until) {
            (Some(since), Some(until)) if since >= until => {
                Err(Failed::usage("--since is not before --until")
                    .hint("--since 2026-11-01 --until 2026-11-08"))
            }
            _ => Ok(within),
        }
    }

    fn is_part(self) -> bool {
        self.since.is_some() || self.until.is_some()
    }
}

pub fn run(args: &AuditArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    if args.actions {
        return with_api(global, out, async |session, out| {
            actions::run(&args.pipeline, args.since.as_deref(), session, out).await
        });
    }
    // Report mistakes on the command line before any request.
    let witness = match &args.applied {
        Some(url) => Some(AuditWitness::at(url, global.ca_file.as_deref())?),
        None => None,
    };
    let within = Within::of(args)?;
    if let Some(records) = on_kafka(args, global)? {
        let (produced, lost) = if args.ids.is_some() || args.ids_file.is_some() {
            (produced(args)?, Vec::new())
        } else {
            out.note(&format!("reading {} …", records.source()));
            records.produced(within)?
        };
        return block_on(audit_records(args, (produced, lost), witness.as_ref(), &records, out));
    }
    let Some(witness) = witness else {
        return Err(Failed::usage(
            "only a pipeline on Kafka has positions that prove something; elsewhere a witness has to",
        )
        .hint(
            "--applied postgres://…, http://… of `redrive downstream`, or a file with one id on each line",
        ));
    };
    if within.is_part() {
        return Err(Failed::usage(
            "only where the messages came from a topic is it known when they were produced",
        )
        .hint("give the ids of that time: --ids o-0..o-9999, or --ids-file FILE"));
    }
    let produced = produced(args)?;
    with_api(global, out, async |session, out| audit(args, produced, &witness, session, out).await)
}

/// The topics of the pipeline, if the configuration says that it is on Kafka.
fn on_kafka(args: &AuditArgs, global: &Global) -> Result<Option<TopicRecords>, Failed> {
    if global.config.is_none() && !Path::new(FILE_DEFAULT).exists() {
        return Ok(None);
    }
    match load_text(global, &Environment::of_process())?.config {
        Some(config) => TopicRecords::of(&config, &args.pipeline),
        // An audit over the API does not need the configuration, so its faults do not matter.
        None => Ok(None),
    }
}

async fn audit_records(
    args: &AuditArgs,
    (mut produced, lost): (ProducedIds, Vec<String>),
    witness: Option<&AuditWitness>,
    records: &TopicRecords,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let mut seen = match witness {
        Some(witness) => {
            gather::gather_records(&mut produced, witness, args.effects.as_deref(), records, out).await?
        }
        None => gather::gather_positions(&mut produced, records, out)?,
    };
    seen.source = Some(records.source().to_owned());
    seen.lost = lost;
    if Within::of(args)?.is_part() {
        // Ids produced before or after the range are not part of this audit.
        seen.not_produced = 0;
    }
    finish(args, &produced, &seen, out)
}

fn finish(
    args: &AuditArgs,
    produced: &ProducedIds,
    seen: &gather::AuditFindings,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let named = if out.is_json() { NAMED_JSON } else { NAMED };
    let reconciliation = reconcile::reconcile(produced, named);
    report::write(
        &report::AuditReport { pipeline: &args.pipeline, reconciliation: &reconciliation, seen },
        out,
    )?;
    Ok(if reconciliation.is_good() && seen.lost.is_empty() { Exit::Ok } else { Exit::Bad })
}

async fn audit(
    args: &AuditArgs,
    mut produced: ProducedIds,
    witness: &AuditWitness,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let seen =
        gather::gather(&args.pipeline, &mut produced, witness, args.effects.as_deref(), session, out).await?;
    finish(args, &produced, &seen, out)
}

fn produced(args: &AuditArgs) -> Result<ProducedIds, Failed> {
    let produced = match (&args.ids, &args.ids_file) {
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
    produced.map_err(|fault| Failed::usage(fault.to_string()))
}
