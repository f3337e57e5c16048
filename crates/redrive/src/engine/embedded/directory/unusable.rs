//! Errors for a directory that cannot be used, with what a person has to do about it.

use std::io::ErrorKind;
use std::path::Path;

use crate::engine::embedded::journal::error::LogError;
use crate::engine::seam::EngineError;

/// What a person can do about missing data.
pub(crate) const HOW_TO_GO_ON: &str = "restore the directory from a backup, or accept the loss with \
     `redrive journal --accept-loss` (in the library: Tuning::accept_missing), which records it";

impl From<LogError> for EngineError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::NewerFormat { .. } => Self::Version(error.to_string()),
            LogError::Io { ref source, .. } => unusable(error.to_string(), source.kind()),
            LogError::Poisoned { .. } => Self::Storage(error.to_string()),
            LogError::MissingSegment { .. } => Self::Damaged(format!("{error}; {HOW_TO_GO_ON}")),
            _ => Self::Damaged(error.to_string()),
        }
    }
}

/// The error of a log that failed while it was running.
pub(crate) fn stopped(error: &LogError) -> EngineError {
    match error {
        LogError::Disturbed { .. } => EngineError::Damaged(error.to_string()),
        _ => EngineError::Storage(error.to_string()),
    }
}

pub(crate) fn failed(what: &str, path: &Path, error: &std::io::Error) -> EngineError {
    unusable(format!("{what} {}: {error}", path.display()), error.kind())
}

/// What a person has to do depends on the cause: repairing the disk is advised only if nothing simpler is wrong.
fn unusable(problem: String, kind: ErrorKind) -> EngineError {
    let fix = match kind {
        ErrorKind::PermissionDenied => "let the user this runs as write there, or choose another directory",
        ErrorKind::NotFound => "a part of the path is missing: create it, or choose another directory",
        ErrorKind::ReadOnlyFilesystem => {
            "the file system is mounted read-only: mount it for writing, or choose another directory"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space, or choose another directory",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists | ErrorKind::IsADirectory => {
            "something else has the name of a directory or file that is needed: move it away, or choose another directory"
        }
        ErrorKind::InvalidFilename | ErrorKind::InvalidInput => "choose another directory",
        _ => return EngineError::Storage(problem),
    };
    EngineError::Directory { problem, fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_has_its_own_way_out() {
        for (kind, fix) in [
            (ErrorKind::PermissionDenied, "let the user this runs as write there"),
            (ErrorKind::NotFound, "create it"),
            (ErrorKind::ReadOnlyFilesystem, "mount it for writing"),
            (ErrorKind::StorageFull, "free some space"),
            (ErrorKind::NotADirectory, "move it away"),
        ] {
            let error = failed("making", Path::new("/srv/orders"), &kind.into());
            let text = error.to_string();
            assert!(text.starts_with("making /srv/orders: ") && text.contains(fix), "{text}");
            assert!(!text.contains("repair"), "{text}");
        }
        let broken = failed("making", Path::new("/srv/orders"), &std::io::Error::other("input/output error"));
        assert!(broken.to_string().contains("repair the disk"), "{broken}");
    }
}
