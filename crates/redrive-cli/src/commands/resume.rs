//! `redrive resume`.

use crate::args::Global;
use crate::client::with_api;
use crate::commands::status;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// The pipeline
    pub pipeline: String,
    /// Resume although the dead-letter guard paused it; the guard stays off until the flood ends
    #[arg(long)]
    pub dead_letter_anyway: bool,
    /// End the wait for a Retry-After that applies to all messages; the message that received it still waits
    #[arg(long)]
    pub now: bool,
}

pub fn run(args: &ResumeArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    with_api(global, out, async |session, out| {
        let answer = session.api.resume(&args.pipeline, args.dead_letter_anyway, args.now).await?;
        status::write(&answer.json, &answer.view, session.now(), out)?;
        Ok(Exit::Ok)
    })
}
