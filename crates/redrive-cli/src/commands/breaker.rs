//! `redrive breaker`: probe now, or close by hand.

use crate::args::Global;
use crate::client::with_api;
use crate::commands::status;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct BreakerArgs {
    #[command(subcommand)]
    pub action: BreakerAction,
}

#[derive(Debug, clap::Subcommand)]
pub enum BreakerAction {
    /// Send probes now instead of after the cooldown
    Probe(BreakerOf),
    /// Close it without probing the downstream; calls ramp up
    Close(BreakerOf),
}

#[derive(Debug, clap::Args)]
pub struct BreakerOf {
    /// The pipeline
    pub pipeline: String,
}

pub fn run(args: &BreakerArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let (pipeline, word) = match &args.action {
        BreakerAction::Probe(BreakerOf { pipeline }) => (pipeline, "probe"),
        BreakerAction::Close(BreakerOf { pipeline }) => (pipeline, "close"),
    };
    with_api(global, out, async |session, out| {
        let answer = session.api.breaker(pipeline, word).await?;
        status::write(&answer.json, &answer.view, session.now(), out)?;
        if word == "probe" {
            out.note(&format!("  sending probes; see the result with: redrive status {pipeline}"));
        }
        Ok(Exit::Ok)
    })
}
