//! `redrive processor`: the pipelines of `redrive.toml`, or one from flags, with their API.

use crate::args::Global;
use crate::config::{Config, EngineKind, ProcessorFlags};
use crate::exit::{Exit, Failed};
use crate::output::Output;
use crate::service::{Runtimes, Signals, assemble, log, run};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub flags: ProcessorFlags,
}

pub fn run(args: &Args, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let config = Config::load(global, &args.flags, out)?;
    log::start(global);
    let assembled = assemble(&config, global)?;
    let runtimes = Runtimes::start()?;
    let signals = {
        let _inside = runtimes.api.enter();
        Signals::listen()?
    };
    let ended = run::run(&runtimes, assembled, signals.asked(), |address| {
        for pipeline in &config.pipelines {
            out.note(&format!("pipeline {} · {}", pipeline.name, policy_line(pipeline)));
        }
        out.note(&format!("API http://{address} · {}", token_line(&config)));
        tracing::info!(%address, pipelines = config.pipelines.len(), "ready");
        Ok(())
    })?;
    tracing::info!("{}", ended.report);
    out.note(&ended.report.to_string());
    Ok(Exit::Ok)
}

/// What a pipeline does, in a few words.
fn policy_line(pipeline: &crate::config::PipelineConfig) -> String {
    let policy = &pipeline.policy;
    let longest = redrive_core::duration::print(policy.forecast().dead_letter_max());
    format!(
        "{} attempts · jitter {} · dead letter after at most {longest}",
        policy.attempts(),
        policy.jitter()
    )
}

fn token_line(config: &Config) -> String {
    if !config.server.tokens.is_empty() {
        let names: Vec<&str> = config.server.tokens.iter().map(|token| token.name.as_str()).collect();
        return format!("tokens {}", names.join(", "));
    }
    if std::env::var_os("REDRIVE_TOKEN").is_some() {
        return "token from REDRIVE_TOKEN".to_owned();
    }
    match config.engine.kind {
        EngineKind::Embedded => format!("token in {}", config.engine.dir.join("token").display()),
        EngineKind::Memory | EngineKind::Kafka => "set REDRIVE_TOKEN to change anything".to_owned(),
    }
}
