//! `redrive completions`: a completion script for a shell, generated from the declared arguments.

use clap::ValueEnum;
use clap_complete::Shell as Generator;

use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub fn run(
    args: &CompletionsArgs,
    command_line: &mut clap::Command,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let generator = match args.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, command_line, "redrive", &mut script);
    out.raw(&script)?;
    Ok(Exit::Ok)
}
