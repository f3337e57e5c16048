//! What follows when a record is acknowledged.

use std::path::PathBuf;

use redrive::internal::engine::Ticket;
use redrive_core::Time;

/// What follows when a record is acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum AfterWrite {
    /// The record it replaces is done.
    Mark(Mark),
    /// A bitmap of the lane is in `T.progress`.
    Progress {
        lane: usize,
        epoch: u32,
    },
    /// A spooled record was accepted, so its file can go.
    Spooled(PathBuf),
    Nothing,
}

/// The record that a copy replaces, and what is to be settled with it.
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
    /// A replayed letter was delivered; `replays` counts this replay.
    Success {
        replays: u32,
    },
}
