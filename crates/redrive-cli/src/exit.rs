//! How a command ends: the exit codes, and an error that carries one.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// The exit codes of every command. Scripts rely on them; a new one is a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// It ran, but the result is bad: an audit, a check, a replay that stopped.
    Bad,
    /// The command line or the configuration is wrong; nothing was started.
    Usage,
    /// A watchdog ended the process.
    Watchdog,
    /// Storage failed. Restarting is the way to recover.
    Storage,
    /// The server is unreachable or busy. Try again.
    TryAgain,
    /// ^C while following work that continues without this command.
    Interrupted,
}

impl Exit {
    pub const ALL: [Self; 7] =
        [Self::Ok, Self::Bad, Self::Usage, Self::Watchdog, Self::Storage, Self::TryAgain, Self::Interrupted];

    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Bad => 1,
            Self::Usage => 2,
            Self::Watchdog => 70,
            Self::Storage => 74,
            Self::TryAgain => 75,
            Self::Interrupted => 130,
        }
    }

    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Bad => "completed, but the result is bad",
            Self::Usage => "usage or configuration error, nothing was started",
            Self::Watchdog => "ended by the watchdog",
            Self::Storage => "storage failed",
            Self::TryAgain => "try again",
            Self::Interrupted => "interrupted by ^C",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command ended early: the problem, its fix, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    pub exit: Exit,
    /// Empty if everything was already reported, or the output is closed.
    pub message: String,
    pub hint: Option<String>,
}

impl Failed {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Ends without further output.
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Converts a failed write to stdout. A closed reader (`| head`) is not an error.
impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::silent(Exit::Ok),
            _ => Self::new(Exit::Storage, format!("writing the output: {error}")),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_that_scripts_rely_on() {
        assert_eq!(Exit::ALL.map(Exit::code), [0, 1, 2, 70, 74, 75, 130]);
    }

    #[test]
    fn the_help_lists_every_code() {
        use clap::CommandFactory as _;
        let help = crate::Cli::command().render_help().to_string();
        let listed = help.split("Exit codes: ").nth(1).unwrap_or_default().replace('\n', " ");
        let listed: Vec<&str> = listed.split(" · ").filter_map(|code| code.split(' ').next()).collect();
        assert_eq!(listed, Exit::ALL.map(|exit| exit.code().to_string()));
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        let gone = Failed::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((gone.exit, gone.message.as_str()), (Exit::Ok, ""));
        assert_eq!(Failed::from(io::Error::from(io::ErrorKind::StorageFull)).exit, Exit::Storage);
    }
}
