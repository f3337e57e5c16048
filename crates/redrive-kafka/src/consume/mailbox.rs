//! Messages between the polling thread and the engine. They are few, and carry whole batches of records.

use std::collections::HashMap;
use std::sync::Arc;

use redrive::internal::engine::ProblemKind;
use redrive::internal::engine::completion::CompletionSet;

use crate::consume::handover::Handover;
use crate::consume::room::LookAheadLimit;
use crate::crash::suspects::Suspected;
use crate::duplicates::died::Died;
use crate::record::Polled;
use crate::topics::LaneKind;

/// What the polling thread reports to the engine.
#[derive(Debug)]
pub enum Note {
    /// These partitions are assigned to us, and no others. A lane is identified by its index in the list.
    Assigned {
        epoch: u32,
        began: Box<Assigned>,
    },
    /// The partitions are revoked. Answered with [`Order::Release`].
    Wanted {
        epoch: u32,
    },
    /// The partitions are no longer ours.
    Gone {
        epoch: u32,
    },
    Records {
        epoch: u32,
        lane: usize,
        records: Vec<Polled>,
    },
    /// Everything present has been read.
    End {
        epoch: u32,
        lane: usize,
    },
    /// Where partitions end.
    Ends {
        epoch: u32,
        ends: Vec<LaneEnd>,
    },
    Committed {
        round: u64,
        problem: Option<String>,
    },
    /// Nothing more comes from this lane until the problem is over.
    Stopped {
        epoch: u32,
        lane: usize,
        kind: ProblemKind,
        problem: String,
    },
    /// Nothing more comes at all.
    Failed {
        problem: String,
        kind: FailKind,
    },
}

/// Where the partition of a lane ends.
#[derive(Clone, Copy, Debug)]
pub struct LaneEnd {
    pub lane: usize,
    pub end: u64,
    /// Whether the client has fetched everything before it.
    pub is_met: bool,
}

/// An assignment as the engine receives it.
#[derive(Debug)]
pub struct Assigned {
    pub lanes: Vec<LaneStart>,
    /// How many partitions each topic has.
    pub partitions: HashMap<Arc<str>, i32>,
    /// Where the letters of these partitions end.
    pub letter_ends: Vec<(i32, i64)>,
    /// The last letters of the earlier owners.
    pub died: Died,
    /// Whether nothing records yet that the pipeline has run.
    pub is_first: bool,
    /// Messages that later ones of their key may overtake, because the source has new partitions.
    pub overtaken: u64,
}

/// Why the polling thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailKind {
    /// Another process has taken over this member's identity.
    Owned,
    /// A later attempt may succeed.
    Unavailable,
    /// An operator has to do this first.
    Refused(&'static str),
}

/// How a lane begins.
#[derive(Debug)]
pub struct LaneStart {
    pub kind: LaneKind,
    pub topic: Arc<str>,
    pub partition: i32,
    pub done: CompletionSet,
    /// The messages that may have killed the last owner.
    pub suspected: Suspected,
    /// The first and last of its bitmaps that are in `T.progress`.
    pub written: Option<(u64, u64)>,
    pub room: Arc<LookAheadLimit>,
}

/// What the engine asks of the polling thread.
#[derive(Debug)]
pub enum Order {
    Commit {
        epoch: u32,
        round: u64,
        places: Vec<PartitionCommit>,
    },
    /// What was handed out is settled, or the time for that is over: commit this and release the partitions.
    Release {
        epoch: u32,
        places: Vec<PartitionCommit>,
    },
    /// Commit this and leave the group.
    Close {
        epoch: u32,
        places: Vec<PartitionCommit>,
    },
}

/// An offset to commit, with its note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionCommit {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: u64,
    pub note: String,
}

/// The queues between the polling thread and the engine.
pub type Mailbox = Handover<Note, Order>;
