//! `redrive breaker`: probe now, or close by hand.

use crate::args::Global;
use crate::client::with_api;
use crate::commands::status;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Send probes now instead of after the cooldown
    Probe(Pipeline),
    /// Close it without asking the downstream; calls begin few and grow
    Close(Pipeline),
}

#[derive(Debug, clap::Args)]
pub struct Pipeline {
    /// The pipeline
    pub pipeline: String,
}

pub fn run(args: &Args, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let (pipeline, word) = match &args.action {
        Action::Probe(Pipeline { pipeline }) => (pipeline, "probe"),
        Action::Close(Pipeline { pipeline }) => (pipeline, "close"),
    };
    with_api(global, out, async |session, out| {
        let answer = session.api.breaker(pipeline, word).await?;
        status::write(&answer.json, &answer.view, session.now(), out)?;
        if word == "probe" {
            out.note(&format!(
                "  probes are on their way; see what they say with: redrive status {pipeline}"
            ));
        }
        Ok(Exit::Ok)
    })
}
