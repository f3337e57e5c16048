//! How far checkpoints and cleaning have come: plain state, moved on by the store.

use redrive_core::Time;

use crate::engine::seam::Ticket;

#[derive(Debug, Default)]
pub(crate) struct Tending {
    /// A checkpoint is being written.
    pub(crate) checkpointing: Option<Checkpoint>,
    /// The journal position of the last checkpoint in the tables.
    pub(crate) checkpoint: u64,
    pub(crate) cleaning: Cleaning,
    /// When it was last written down how much the store holds.
    pub(crate) counted: Time,
    /// The end of the journal when cleaning was last considered.
    pub(crate) considered: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoint {
    pub(crate) position: u64,
    pub(crate) next_seq: u64,
    pub(crate) persist: bool,
}

/// The segment that is being cleaned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) letters: bool,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) enum Cleaning {
    #[default]
    Idle,
    /// Waiting for a checkpoint that knows everything that has left the segment.
    Preparing(Segment, u64),
    Scanning(Segment),
    /// Waiting until what was carried forward is durable; then the scan goes on, or the segment can go.
    Carrying(Segment, Ticket, Option<u64>),
    /// Waiting for a persisted checkpoint behind everything that was carried forward.
    Persisting(Segment, u64),
    /// Waiting until the writer has removed it. Until then it is still the oldest, and would be cleaned once more while
    /// its file goes away.
    Dropping(Segment),
}

impl Tending {
    /// The tables reflect the journal up to `checkpoint`.
    pub(crate) fn after(checkpoint: u64) -> Self {
        Self { checkpoint, ..Self::default() }
    }
}
