//! `redrive pause`.

use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pipeline
    pub pipeline: String,
}

pub fn run(_args: &Args, _global: &Global, _out: &mut Output) -> Result<Exit, Failed> {
    Err(Failed::not_built_yet("pause"))
}
