//! `redrive dlq`.

use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Count the dead letters of a pipeline by state, reason and class
    Stats {
        /// The pipeline
        pipeline: String,
    },
}

pub fn run(_args: &Args, _global: &Global, _out: &mut Output) -> Result<Exit, Failed> {
    Err(Failed::not_built_yet("dlq"))
}
