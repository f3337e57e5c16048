//! `redrive check`: validates a configuration and prints what it implies, computed by the code that decides at run
//! time.

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod sink;

use std::time::Duration;

use redrive_core::{duration, rate};
use serde_json::json;

use crate::args::Global;
use crate::config::resolved::ResolvedTable;
use crate::config::{Config, ProcessorFlags};
use crate::exit::{Exit, Failed};
use crate::output::Output;
use crate::planning::{Assumed, PipelineFigures, Questions, Slo, text};

/// Larger messages are refused anyway.
const MESSAGE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Messages that come in: 50k/s
    #[arg(long, value_name = "RATE", value_parser = rate::parse)]
    pub rate: Option<f64>,
    /// What fails: transient=15%,poison=1%; twice=33% of the transient fail a second time
    #[arg(long, value_name = "SHARES")]
    pub assume: Option<Assumed>,
    /// Dead letters that people look at: 200/s
    #[arg(long, value_name = "RATE", value_parser = rate::parse)]
    pub triage: Option<f64>,
    /// Length of the outage
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = outage)]
    pub outage: Duration,
    /// The size of a payload, for the size of dead letters
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u64).range(0..=MESSAGE_BYTES_MAX))]
    pub message_bytes: u64,
    /// An objective that must be met: 'p99 recovery < 10m through outage 15m'
    #[arg(long, value_name = "OBJECTIVE")]
    pub slo: Vec<Slo>,
    /// Look at the Kafka cluster instead: topics, positions, ACLs, what a lost broker costs, whether the service answers
    #[arg(long, conflicts_with_all = ["rate", "assume", "triage", "slo", "explain"])]
    pub kafka: bool,
    /// Show every effective value and where it came from
    #[arg(long)]
    pub explain: bool,
    #[command(flatten)]
    pub flags: ProcessorFlags,
}

fn outage(text: &str) -> Result<Duration, String> {
    let outage = duration::parse(text).map_err(|error| error.to_string())?;
    if outage.is_zero() { Err("the outage must be longer than zero".to_owned()) } else { Ok(outage) }
}

#[cfg(feature = "kafka")]
fn look_at_kafka(config: &Config, out: &mut Output) -> Result<Exit, Failed> {
    kafka::run(config, out)
}

#[cfg(feature = "kafka")]
use kafka::build_of;

#[cfg(not(feature = "kafka"))]
fn build_of(_: &Config, _: &mut Output) -> Result<Option<serde_json::Value>, Failed> {
    Ok(None)
}

#[cfg(not(feature = "kafka"))]
fn look_at_kafka(_: &Config, _: &mut Output) -> Result<Exit, Failed> {
    Err(Failed::usage("this build has no Kafka engine").hint("build it with the feature `kafka`"))
}

pub fn run(args: &CheckArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let config = Config::load(global, &args.flags, out)?;
    if args.kafka {
        return look_at_kafka(&config, out);
    }
    let questions = Questions {
        rate: args.rate,
        assumed: args.assume,
        triage: args.triage,
        outage: args.outage,
        message_bytes: args.message_bytes as usize,
        slos: args.slo.clone(),
    };
    let mut met = true;
    let mut documents = Vec::new();
    for (i, pipeline) in config.pipelines.iter().enumerate() {
        let figures = PipelineFigures::of(pipeline, &questions);
        met &= figures.slos.iter().all(|answer| answer.met);
        let explained = pipeline.resolved(config.source());
        if out.is_json() {
            let mut document = figures.to_json(&pipeline.name, &questions);
            if args.explain {
                document["settings"] = explained.iter().map(ResolvedTable::to_json).collect();
            }
            documents.push(document);
            continue;
        }
        if i > 0 {
            out.line("")?;
        }
        for line in text::lines(pipeline, &figures, &questions) {
            out.line(&line)?;
        }
        if args.explain {
            for line in explained.iter().flat_map(|table| table.text(true)) {
                out.line(&format!("  {line}"))?;
            }
        }
    }
    let build = build_of(&config, out)?;
    if out.is_json() {
        let mut document = json!({"pipelines": documents, "slos_met": met});
        if let Some(build) = build {
            document["kafka_build"] = build;
        }
        out.json(&document)?;
    }
    Ok(if met { Exit::Ok } else { Exit::Bad })
}
