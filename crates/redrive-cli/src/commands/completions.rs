//! `redrive completions`: a script for a shell, from the same declaration as the help.

use clap::{CommandFactory as _, ValueEnum};
use clap_complete::Shell as Generator;

use crate::args::{Cli, Global};
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct Args {
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

pub fn run(args: &Args, _global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let generator = match args.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut Cli::command(), "redrive", &mut script);
    out.raw(&script)?;
    Ok(Exit::Ok)
}
