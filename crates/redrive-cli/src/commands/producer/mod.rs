//! `redrive producer`: orders at a fixed rate that does not slow down when the consumer does.

#[cfg(feature = "kafka")]
mod topic;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redrive_core::{Ratio, duration, rate};
use redrive_lab::producer::options::{IN_FLIGHT_MAX, OnProgress};
use redrive_lab::producer::{Bearer, ProducerError, ProducerOptions, Target, TargetFault};
use redrive_lab::share;

use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::Output;
use crate::service::{Runtimes, Signals};

#[derive(Debug, clap::Args)]
pub struct ProducerArgs {
    /// The ingest address of a pipeline
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7333/v1/pipelines/orders/messages")]
    pub target: String,
    /// Kafka brokers: orders go onto a topic instead
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        requires = "topic",
        conflicts_with = "target"
    )]
    pub brokers: Option<Vec<String>>,
    /// The Kafka topic
    #[arg(long, requires = "brokers")]
    pub topic: Option<String>,
    /// Orders per second: 50, 2k, 50k/s
    #[arg(long, default_value = "50", value_parser = rate::parse)]
    pub rate: f64,
    /// End after this many orders
    #[arg(long)]
    pub count: Option<u64>,
    /// End after this long: 30s, 20m
    #[arg(long, value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// Share of the orders that always fail
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share::parse)]
    pub poison_rate: Ratio,
    /// Share of the orders that fail at first
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share::parse)]
    pub transient_rate: Ratio,
    /// The same seed makes the same orders with the same fates
    #[arg(long, default_value_t = redrive_lab::seed::DEFAULT_SEED)]
    pub seed: u64,
    /// The number of the first order, to continue where another run ended
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Orders per request
    #[arg(long, default_value_t = 1)]
    pub batch: u32,
    /// Requests in flight at the same time; default: 64, onto a topic 10,000
    #[arg(long, value_name = "REQUESTS")]
    pub in_flight: Option<usize>,
    /// Write the ids that were acknowledged here, one per line, for `redrive audit --ids-file`
    #[arg(long, value_name = "FILE")]
    pub ids_file: Option<PathBuf>,
    /// Address and port of the metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7334")]
    pub listen: SocketAddr,
}

pub fn run(args: &ProducerArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let wrong = |fault: TargetFault| Failed::usage(fault.to_string());
    let token = match global.token()? {
        Some(token) => Some(Bearer::new(token.expose()).map_err(wrong)?),
        None => None,
    };
    let target = match (&args.brokers, &args.topic) {
        (Some(brokers), Some(topic)) => onto_topic(brokers, topic)?,
        _ => Target::http(&args.target, token).map_err(wrong)?,
    };
    let last: Arc<Mutex<Option<String>>> = Arc::default();
    let heard = Arc::clone(&last);
    let loud = !global.quiet && !global.json;
    let options = ProducerOptions {
        rate: args.rate,
        count: args.count,
        duration: args.duration,
        poison_rate: args.poison_rate,
        transient_rate: args.transient_rate,
        seed: args.seed,
        first: args.first,
        batch: args.batch,
        in_flight_max: args.in_flight.unwrap_or(if args.topic.is_some() { IN_FLIGHT_MAX } else { 64 }),
        ids_file: args.ids_file.clone(),
        listen: Some(args.listen),
        on_progress: Some(OnProgress(Arc::new(move |progress| {
            let line = progress.to_string();
            if loud {
                eprintln!("{line}");
            }
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        }))),
        ..ProducerOptions::new(target)
    };
    let runtimes = Runtimes::start()?;
    let report = runtimes.api.block_on(async {
        let signals = Signals::listen()?;
        redrive_lab::producer::run(options, signals.asked()).await.map_err(|error| failed(&error))
    })?;
    if out.is_json() {
        let total = &report.total;
        out.json(&serde_json::json!({
            "produced": total.sent, "accepted": total.accepted, "duplicates": total.duplicates,
            "refused": total.refused, "unreachable": total.unreachable, "unanswered": report.unanswered_count(),
            "poison": report.poison, "transient": report.transient, "seed": report.seed,
            "rate": total.rate, "late_p99_ms": total.late_p99.as_secs_f64() * 1000.0, "stopped": report.stopped,
        }))?;
    } else {
        out.line(&report.to_string())?;
    }
    Ok(Exit::Ok)
}

#[cfg(feature = "kafka")]
fn onto_topic(brokers: &[String], topic: &str) -> Result<Target, Failed> {
    topic::target(brokers, topic)
}

#[cfg(not(feature = "kafka"))]
fn onto_topic(_: &[String], _: &str) -> Result<Target, Failed> {
    Err(Failed::usage("this build has no Kafka client").hint("build it with the feature `kafka`"))
}

fn failed(error: &ProducerError) -> Failed {
    let exit = match error {
        ProducerError::Options(_) | ProducerError::Listen { .. } => Exit::Usage,
        ProducerError::IdsFile { .. } => Exit::Storage,
        ProducerError::Rejected { .. } => Exit::Bad,
    };
    Failed::new(exit, error.to_string())
}
