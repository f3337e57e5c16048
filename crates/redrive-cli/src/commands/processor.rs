//! `redrive processor`: the pipelines of `redrive.toml`, or one from flags, with their API.

use std::net::SocketAddr;

use redrive::RunReport;

use crate::args::Global;
use crate::config::{Config, EngineKind, PipelineConfig, ProcessorFlags};
use crate::exit::{Exit, Failed};
use crate::output::{Output, Style};
use crate::service::{Runtimes, Signals, alerts, assemble, files, hangup, log, run, supervise, tokens};

#[derive(Debug, clap::Args)]
pub struct ProcessorArgs {
    #[command(flatten)]
    pub flags: ProcessorFlags,

    /// Restart it when it dies: a worker process does the work, and this one supervises it
    #[arg(long)]
    pub supervise: bool,

    /// The supervisor that this is a worker of
    #[arg(long, value_name = "PID", hide = true, conflicts_with = "supervise")]
    pub worker_of: Option<u32>,
}

pub fn run(args: &ProcessorArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    if args.supervise {
        log::start(global);
        let code = supervise::supervise()?;
        // The exit code of the worker, which need not be one of ours. The worker has already reported everything.
        std::process::exit(i32::from(code));
    }
    if args.worker_of.is_some_and(|supervisor| !supervise::end_with(supervisor)) {
        return Ok(Exit::Ok);
    }
    log::start(global);
    let config = if log::is_read_by_people() {
        Config::load(global, &args.flags, out)?
    } else {
        Config::load_warning(global, &args.flags, out, |warning| tracing::warn!("{warning}"))?
    };
    let ended = process(&config, args.worker_of.is_some(), global, out);
    if let Err(failed) = &ended {
        alerts::tell_of_failed_storage(&config, failed);
    }
    let report = ended?;
    if log::is_read_by_people() {
        out.note(&report.to_string());
    } else {
        tracing::info!("{report}");
    }
    Ok(Exit::Ok)
}

/// Runs the processor, from opening the stores to shutdown.
fn process(config: &Config, is_worker: bool, global: &Global, out: &mut Output) -> Result<RunReport, Failed> {
    if let Some(few) = files::raise_limit() {
        tracing::warn!("{few}");
    }
    let runtimes = Runtimes::start()?;
    {
        // Opening the stores may take long, and a reload signal meanwhile must not end the process.
        let _inside = runtimes.api.enter();
        hangup::survive()?;
    }
    let mut assembled = assemble(config, global)?;
    let signals = {
        let _inside = runtimes.api.enter();
        hangup::reload(assembled.certificate.take())?;
        if is_worker { Signals::listen_as_worker()? } else { Signals::listen()? }
    };
    let ended = run::run(&runtimes, assembled, signals.asked(), |address| {
        started(config, global, address, out);
        Ok(())
    });
    // Tasks that still block, for example on name resolution, must not delay the exit.
    runtimes.leave();
    Ok(ended?.report)
}

fn started(config: &Config, global: &Global, address: SocketAddr, out: &mut Output) {
    let forgets = config.engine.kind == EngineKind::Memory;
    let token = token_line(config, global);
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    // On a terminal, print text for people; otherwise the log has the same information.
    if log::is_read_by_people() {
        for pipeline in &config.pipelines {
            out.note(&format!("pipeline {} · {}", pipeline.name, policy_line(pipeline)));
        }
        if forgets {
            let label = out.paint_note(Style::Warning, "warning:");
            out.note(&format!("{label} {FORGETS}"));
        }
        out.note(&format!("API and page {scheme}://{address}/ · {token}"));
        return;
    }
    for pipeline in &config.pipelines {
        tracing::info!(pipeline = pipeline.name, policy = policy_line(pipeline), "pipeline runs");
    }
    if forgets {
        tracing::warn!("{FORGETS}");
    }
    let page = format!("{scheme}://{address}/");
    tracing::info!(%address, page, token, pipelines = config.pipelines.len(), "ready");
}

/// A warning for running without a disk.
const FORGETS: &str =
    "engine memory: a restart loses every message and dead letter; use `embedded` to keep them";

/// The pipeline's policy in a few words.
fn policy_line(pipeline: &PipelineConfig) -> String {
    let policy = &pipeline.policy;
    let longest = redrive_core::duration::print(policy.forecast().dead_letter_max());
    format!(
        "{} attempts · jitter {} · dead letter after at most {longest}",
        policy.attempts(),
        policy.jitter()
    )
}

/// The source of the token, never the token itself.
fn token_line(config: &Config, global: &Global) -> String {
    if !config.server.tokens.is_empty() {
        let names: Vec<&str> = config.server.tokens.iter().map(|token| token.name.as_str()).collect();
        return format!("tokens {}", names.join(", "));
    }
    if let Some(path) = &global.token_file {
        return format!("token in {}", path.display());
    }
    if global.token().is_ok_and(|token| token.is_some()) {
        return "token from REDRIVE_TOKEN".to_owned();
    }
    match config.engine.kind {
        EngineKind::Embedded | EngineKind::Kafka => {
            format!("token in {}", config.engine.dir.join(tokens::FILE).display())
        }
        EngineKind::Memory => "set REDRIVE_TOKEN to change anything".to_owned(),
    }
}
