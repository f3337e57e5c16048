//! Why a log could not be opened, written or read.

use std::io;

use super::frame::{Rot, RotHeader};
use crate::engine::embedded::disk::real::is_out_of_files;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{what} {name}: {source}")]
    Io { what: &'static str, name: String, source: io::Error },
    /// After a failed write or sync the content of the disk is unknown; a repeated sync may succeed although the data
    /// is lost. Only opening the log again can tell.
    #[error("the log has stopped after an earlier failure ({cause}); open it again to recover")]
    Poisoned { cause: String },
    #[error("{name} is missing or too short: {} bytes, positions {from} to {to}, are gone", to - from)]
    MissingSegment { name: String, from: u64, to: u64 },
    #[error(
        "{name} was {how} while it is in use, by another process or by a person: nothing more is written; stop what \
         else uses this directory, and start again"
    )]
    Disturbed { name: String, how: String },
    #[error("{name} has format version {found}, this program reads up to {ours}; use the newer program")]
    NewerFormat { name: String, found: u32, ours: u32 },
    #[error(
        "{name} belongs to another store than the one in FORMAT; move it out of this directory, or restore FORMAT"
    )]
    OtherStore { name: String },
    #[error("{name} contains {says}: it was renamed; restore its name")]
    Renamed { name: String, says: String },
}

impl LogError {
    /// Whether a file could not be created for want of a file descriptor. Nothing was changed then.
    pub(crate) fn lacks_a_file(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_files(source))
    }

    pub(crate) fn io(what: &'static str, name: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let name = name.into();
        move |source| Self::Io { what, name, source }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the log has no frame at {position}; it was removed, is missing or was never written")]
    Missing { position: u64 },
    #[error("the frame at {position} is damaged")]
    Rot { position: u64, len: u64, header: Option<RotHeader> },
    #[error("reading the log at {position}: {source}")]
    Io { position: u64, source: io::Error },
}

impl From<Rot> for ReadError {
    fn from(Rot { position, len, header }: Rot) -> Self {
        Self::Rot { position, len, header }
    }
}
