//! The command line, as clap reads it. What a flag means is said where the command is.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    audit, check, completions, config, demo, dlq, downstream, journal, pause, processor, producer, resume,
    status,
};
use crate::exit::{Exit, Failed};

/// Retries and dead letters: every message ends in success or in a dead letter you can look at, fix and send again.
#[derive(Debug, Parser)]
#[command(name = "redrive", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 ok · 1 it ran and the answer is bad · 2 usage or configuration · \
                        70 watchdog · 74 storage failed · 75 try again")]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The configuration; ./redrive.toml unless given
    #[arg(long, global = true, value_name = "FILE", env = "REDRIVE_CONFIG")]
    pub config: Option<PathBuf>,

    /// Print JSON instead of tables
    #[arg(long, global = true)]
    pub json: bool,

    /// The processor to talk to; the `server.listen` of the configuration, or http://127.0.0.1:7333, unless given
    #[arg(long, global = true, value_name = "URL", env = "REDRIVE_URL")]
    pub url: Option<String>,

    /// A file that holds the bearer token; REDRIVE_TOKEN holds the token itself
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Say more; twice for even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Say nothing but data and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show all of it in one process: producer, flaky downstream, pipeline, page
    Demo(demo::Args),
    /// Run pipelines from redrive.toml, or one from flags
    Processor(Box<processor::Args>),
    /// Produce orders at a fixed rate that does not wait for anybody
    Producer(producer::Args),
    /// A downstream that fails as told, with a ledger of what was applied
    Downstream(downstream::Args),
    /// Look at dead letters, replay, discard or export them
    Dlq(dlq::Args),
    /// Show the live state of a pipeline
    Status(status::Args),
    /// Stop starting attempts of a pipeline; messages are still accepted
    Pause(pause::Args),
    /// Let a paused pipeline go on
    Resume(resume::Args),
    /// Check a configuration and print what it implies
    Check(Box<check::Args>),
    /// Count a real system against an independent witness
    Audit(audit::Args),
    /// Print, check or explain the configuration
    Config(config::Args),
    /// Print and verify a store of the embedded engine, without changing it
    Journal(journal::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

/// A bearer token. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Global {
    /// The token of `--token-file`, else that of `REDRIVE_TOKEN`, else none.
    pub fn token(&self) -> Result<Option<Token>, Failed> {
        let from_environment = || std::env::var("REDRIVE_TOKEN").ok();
        let text = match &self.token_file {
            None => from_environment(),
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|error| {
                    Failed::new(Exit::Usage, format!("--token-file {}: {error}", path.display()))
                })?;
                Some(text)
            }
        };
        let text = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        match (&self.token_file, text) {
            (Some(path), None) => {
                Err(Failed::usage(format!("--token-file {}: the file is empty", path.display())))
            }
            (_, text) => Ok(text.map(Token)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_token_comes_from_its_file_and_is_never_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "s3cret\n").unwrap();
        let global = Global { token_file: Some(path.clone()), ..Global::default() };
        let token = global.token().unwrap().unwrap();
        assert_eq!(token.reveal(), "s3cret");
        assert!(!format!("{token:?}").contains("s3cret"));

        fs::write(&path, " \n").unwrap();
        assert!(global.token().unwrap_err().message.ends_with("the file is empty"));
        let global = Global { token_file: Some(dir.path().join("nowhere")), ..Global::default() };
        assert_eq!(global.token().unwrap_err().exit, Exit::Usage);
    }
}
