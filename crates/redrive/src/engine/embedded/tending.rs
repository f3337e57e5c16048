//! How far checkpoints and cleaning have come: plain state, moved on by the store.

use redrive_core::Time;

use crate::engine::seam::Ticket;

#[derive(Debug, Default)]
pub(super) struct Tending {
    /// A checkpoint is being written.
    pub(super) checkpointing: Option<Checkpoint>,
    /// The journal position of the last checkpoint in the tables.
    pub(super) checkpoint: u64,
    pub(super) cleaning: Cleaning,
    /// When it was last written down how much the store holds.
    pub(super) counted: Time,
    /// The end of the journal when cleaning was last considered.
    pub(super) considered: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Checkpoint {
    pub(super) position: u64,
    pub(super) next_seq: u64,
    pub(super) persist: bool,
}

/// The segment that is being cleaned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) base: u64,
    pub(super) end: u64,
    pub(super) letters: bool,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Cleaning {
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
    pub(super) fn after(checkpoint: u64) -> Self {
        Self { checkpoint, ..Self::default() }
    }
}
