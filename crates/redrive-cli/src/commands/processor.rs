//! `redrive processor`: the pipelines of `redrive.toml`, or one from flags, with their API.

use std::net::SocketAddr;

use crate::args::Global;
use crate::config::{Config, EngineKind, PipelineConfig, ProcessorFlags};
use crate::exit::{Exit, Failed};
use crate::output::Output;
use crate::service::{Runtimes, Signals, assemble, log, run, tokens};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub flags: ProcessorFlags,
}

pub fn run(args: &Args, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let config = Config::load(global, &args.flags, out)?;
    let assembled = assemble(&config, global)?;
    log::start(global);
    let runtimes = Runtimes::start()?;
    let signals = {
        let _inside = runtimes.api.enter();
        Signals::listen()?
    };
    let ended = run::run(&runtimes, assembled, signals.asked(), |address| {
        started(&config, global, address, out);
        Ok(())
    });
    // Whatever still waits for something, a name to be resolved perhaps, is nothing that anybody waits for.
    runtimes.leave();
    let report = ended?.report;
    tracing::info!("{report}");
    if log::is_read_by_people() {
        out.note(&report.to_string());
    }
    Ok(Exit::Ok)
}

fn started(config: &Config, global: &Global, address: SocketAddr, out: &mut Output) {
    if log::is_read_by_people() {
        for pipeline in &config.pipelines {
            out.note(&format!("pipeline {} · {}", pipeline.name, policy_line(pipeline)));
        }
        out.note(&format!("API http://{address} · {}", token_line(config, global)));
    }
    for pipeline in &config.pipelines {
        tracing::info!(pipeline = pipeline.name, policy = policy_line(pipeline), "pipeline runs");
    }
    let token = token_line(config, global);
    tracing::info!(%address, token, pipelines = config.pipelines.len(), "ready");
}

/// What a pipeline does, in a few words.
fn policy_line(pipeline: &PipelineConfig) -> String {
    let policy = &pipeline.policy;
    let longest = redrive_core::duration::print(policy.forecast().dead_letter_max());
    format!(
        "{} attempts · jitter {} · dead letter after at most {longest}",
        policy.attempts(),
        policy.jitter()
    )
}

/// Where the token comes from, never the token.
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
