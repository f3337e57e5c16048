//! Arguments of every command.

use std::path::PathBuf;

use clap::Args;
use redrive_sinks::Secret;

use crate::exit::Failed;
use crate::output::count;

/// Parses a whole number from `least` to `most`.
pub fn whole<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("must be {} to {}", count(least), count(most)))
    }
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

    /// The authorities to trust for an https address, in PEM, instead of the usual ones
    #[arg(long, global = true, value_name = "FILE", env = "REDRIVE_CA_FILE")]
    pub ca_file: Option<PathBuf>,

    /// Say more; twice for even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Say nothing but data and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

impl Global {
    /// The token of `--token-file`, else that of `REDRIVE_TOKEN`, else none.
    pub fn token(&self) -> Result<Option<Secret>, Failed> {
        if let Some(path) = &self.token_file {
            let secret = Secret::read(path);
            return secret.map(Some).map_err(|error| Failed::usage(format!("--token-file {error}")));
        }
        let given = std::env::var("REDRIVE_TOKEN").unwrap_or_default();
        Ok(Some(given.trim()).filter(|text| !text.is_empty()).map(Secret::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_from_its_file_and_is_never_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "s3cret\n").unwrap();
        let global = Global { token_file: Some(path.clone()), ..Global::default() };
        let token = global.token().unwrap().unwrap();
        assert_eq!(token.expose(), "s3cret");
        assert!(!format!("{token:?}").contains("s3cret"));

        std::fs::write(&path, " \n").unwrap();
        assert!(global.token().unwrap_err().message.ends_with("the file is empty"));
        let global = Global { token_file: Some(dir.path().join("nowhere")), ..Global::default() };
        assert_eq!(global.token().unwrap_err().exit, crate::exit::Exit::Usage);
    }
}
