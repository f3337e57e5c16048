//! `redrive pause`.

use crate::args::Global;
use crate::client::with_api;
use crate::commands::status;
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    /// The pipeline
    pub pipeline: String,
}

pub fn run(args: &PauseArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    with_api(global, out, async |session, out| {
        let answer = session.api.pause(&args.pipeline).await?;
        status::write(&answer.json, &answer.view, session.now(), out)?;
        out.note(&format!(
            "nothing is delivered until: redrive resume {}   (by no process, also over a restart; messages are still accepted)",
            args.pipeline
        ));
        Ok(Exit::Ok)
    })
}
