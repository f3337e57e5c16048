//! `redrive downstream`: a stub that fails on request and records what it applied.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use redrive_core::{Ratio, duration};
use redrive_lab::downstream::ledger::Url;
use redrive_lab::downstream::{
    DownstreamError, DownstreamOptions, Latency, LedgerOptions, OutageStyle, OutageWindow, Server, Switches,
};
use redrive_lab::share;

use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::Output;
use crate::service::{Runtimes, Signals};

#[derive(Debug, clap::Args)]
pub struct DownstreamArgs {
    /// Share of the ids that fail at first: two thirds of them once, a third twice
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share::parse)]
    pub fail_rate: Ratio,
    /// Whether orders marked as poison are refused: on or off
    #[arg(long, value_name = "ON|OFF", default_value = "on", num_args = 0..=1, default_missing_value = "on")]
    pub poison_detect: String,
    /// How long an answer takes: 20ms, or 10ms..50ms
    #[arg(long, default_value = "0s")]
    pub latency: Latency,
    /// Outage window: 60s@5m is a minute, five minutes after the start
    #[arg(long, value_name = "LENGTH@AFTER")]
    pub outage_window: Option<OutageWindow>,
    /// How the outage looks: unavailable (503), refuse or hang
    #[arg(long, default_value = "unavailable")]
    pub outage_style: OutageStyle,
    /// Give this Retry-After with every 503
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub retry_after: Option<Duration>,
    /// Keep the ids that were applied in this file
    #[arg(long, value_name = "FILE", conflicts_with = "postgres")]
    pub ledger: Option<PathBuf>,
    /// Keep them in PostgreSQL, in the table `applied`, in the transaction of the effect
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
    /// Seed for choosing which messages fail
    #[arg(long, default_value_t = redrive_lab::seed::DEFAULT_SEED)]
    pub seed: u64,
    /// Address and port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7335")]
    pub listen: SocketAddr,
    /// Listen beyond loopback, for a container or a test network; whoever reaches it can change its switches
    #[arg(long)]
    pub allow_remote: bool,
}

/// Builds the options from the arguments.
pub fn options(args: &DownstreamArgs) -> Result<DownstreamOptions, Failed> {
    let poison_detect = match args.poison_detect.as_str() {
        "on" => true,
        "off" => false,
        other => return Err(Failed::usage(format!("--poison-detect {other}: write on or off"))),
    };
    let ledger = match (&args.ledger, &args.postgres) {
        (Some(path), _) => LedgerOptions::File(path.clone()),
        (None, Some(url)) => LedgerOptions::Postgres(Url(url.clone())),
        (None, None) => LedgerOptions::Memory,
    };
    let options = DownstreamOptions {
        listen: args.listen,
        allow_remote: args.allow_remote,
        seed: args.seed,
        ledger,
        switches: Switches {
            fail_rate: args.fail_rate,
            poison_detect,
            latency: args.latency,
            outage_window: args.outage_window,
            outage_style: args.outage_style,
            retry_after: args.retry_after,
            ..Switches::default()
        },
    };
    options.check_listen().map_err(|error| failed(&error))?;
    Ok(options)
}

pub fn run(args: &DownstreamArgs, _global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let options = options(args)?;
    let runtimes = Runtimes::start()?;
    let report = runtimes.api.block_on(async {
        let signals = Signals::listen()?;
        let server = Server::bind(&options).await.map_err(|error| failed(&error))?;
        if let Some(notice) = server.downstream().notice() {
            out.note(&notice);
        }
        let addr = server.addr();
        out.note(&format!("downstream http://{addr} · switches: curl -X PUT http://{addr}/switches -d '{{\"fail_rate\":\"50%\"}}'"));
        out.note(&format!("fix the poison: curl -X POST http://{addr}/fix · counters: http://{addr}/stats"));
        server.run(signals.asked()).await.map_err(|error| failed(&error))
    })?;
    let stats = report.stats;
    if out.is_json() {
        out.json(&stats.to_json(None, false))?;
    } else {
        let failures: u64 = stats.failures.iter().sum();
        out.line(&format!(
            "calls {}  applied {}  duplicates {}  failures {failures}",
            stats.calls, stats.applied, stats.duplicates
        ))?;
    }
    Ok(Exit::Ok)
}

fn failed(error: &DownstreamError) -> Failed {
    let exit = match error {
        DownstreamError::Ledger(_) => Exit::Storage,
        DownstreamError::Listen { .. } | DownstreamError::NotLoopback { .. } => Exit::Usage,
    };
    Failed::new(exit, error.to_string())
}
