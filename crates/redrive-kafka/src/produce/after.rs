//! What to do when a record is acknowledged.

use std::path::PathBuf;

use redrive::internal::engine::Ticket;
use redrive_core::Time;

/// What to do when a record is acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum AfterWrite {
    /// Mark the record that it replaces as done.
    Mark(Mark),
    /// Note that a bitmap of the lane is in `T.progress`.
    Progress {
        lane: usize,
        epoch: u32,
    },
    /// Remove the file of a spooled record, which was accepted.
    Spooled(PathBuf),
    Nothing,
}

/// The record that a copy replaces, and what has to be settled with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub lane: usize,
    pub epoch: u32,
    pub offset: u64,
    pub key: Option<u64>,
    pub number: u64,
    pub ticket: Option<Ticket>,
    pub kind: CopyKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyKind {
    Retry {
        due: Time,
    },
    Letter,
    /// The success of a replayed letter; `replays` includes this replay.
    Success {
        replays: u32,
    },
}
