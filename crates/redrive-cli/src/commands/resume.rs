//! `redrive resume`.

use crate::args::Global;
use crate::client::with_api;
use crate::commands::status;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pipeline
    pub pipeline: String,
    /// Let the dead letters come for which the guard has paused it, until that flood is over
    #[arg(long)]
    pub dead_letter_anyway: bool,
    /// Wait no longer for a Retry-After that holds for all messages; the message that got it still does
    #[arg(long)]
    pub now: bool,
}

pub fn run(args: &Args, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    with_api(global, out, async |session, out| {
        let answer = session.api.resume(&args.pipeline, args.dead_letter_anyway, args.now).await?;
        status::write(&answer.json, &answer.view, session.now(), out)?;
        Ok(Exit::Ok)
    })
}
