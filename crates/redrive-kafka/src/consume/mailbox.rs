//! Messages between the polling thread and the engine: few, with whole batches of records.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;

use redrive::internal::engine::ProblemKind;
use redrive::internal::engine::completion::CompletionSet;

use crate::consume::room::LookAheadLimit;
use crate::crash::suspects::Suspected;
use crate::duplicates::died::Died;
use crate::locked::locked;
use crate::record::Polled;
use crate::topics::LaneKind;

/// What the polling thread reports to the engine.
#[derive(Debug)]
pub enum Note {
    /// These partitions belong to us now, and nothing else does. A lane is named by its place in the list.
    Assigned {
        epoch: u32,
        began: Box<Assigned>,
    },
    /// The partitions are revoked. Answered with [`Order::Release`].
    Wanted {
        epoch: u32,
    },
    /// They are gone.
    Gone {
        epoch: u32,
    },
    Records {
        epoch: u32,
        lane: usize,
        records: Vec<Polled>,
    },
    /// Everything that was there has been read.
    End {
        epoch: u32,
        lane: usize,
    },
    /// Where topics end.
    Ends {
        epoch: u32,
        ends: Vec<LaneEnd>,
    },
    Committed {
        round: u64,
        problem: Option<String>,
    },
    /// Nothing more comes from this lane until a person has looked.
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

/// What an assignment begins with.
#[derive(Debug)]
pub struct Assigned {
    pub lanes: Vec<LaneStart>,
    /// How many partitions topics have.
    pub partitions: HashMap<Arc<str>, i32>,
    /// Where the letters of these partitions end.
    pub letter_ends: Vec<(i32, i64)>,
    /// The last letters of the owners before.
    pub died: Died,
    /// Whether nothing says yet that the pipeline has run.
    pub is_first: bool,
    /// Messages that later ones of their key may overtake, because the source has new partitions.
    pub overtaken: u64,
}

/// Why nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailKind {
    /// Another process has taken this one's place.
    Owned,
    /// It may go better another time.
    Unavailable,
    /// Somebody has to do what is said here first.
    Refused(&'static str),
}

/// How a lane begins.
#[derive(Debug)]
pub struct LaneStart {
    pub kind: LaneKind,
    pub topic: Arc<str>,
    pub partition: i32,
    pub done: CompletionSet,
    /// Who may have ended its last owner.
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
    /// What was handed out is settled, or the time for that is over: commit this and let the partitions go.
    Release {
        epoch: u32,
        places: Vec<PartitionCommit>,
    },
    /// Commit this and leave.
    Close {
        epoch: u32,
        places: Vec<PartitionCommit>,
    },
}

/// An offset to be committed, with what stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionCommit {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: u64,
    pub note: String,
}

type Wake = Arc<dyn Fn() + Send + Sync>;

/// What was sent and not received yet, and how to wake the receiver.
#[derive(Default)]
pub struct Mailbox {
    notes: Mutex<Vec<Note>>,
    orders: Mutex<VecDeque<Order>>,
    wake: Mutex<Option<Wake>>,
    reader: OnceLock<Thread>,
    /// The engine has something to do soon that no event will remind it of.
    reminder: AtomicBool,
    /// Whether the consumer is a member of its group.
    member: AtomicBool,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl Mailbox {
    pub fn note_membership(&self, is_member: bool) {
        self.member.store(is_member, Ordering::SeqCst);
    }

    pub fn is_member(&self) -> bool {
        self.member.load(Ordering::SeqCst)
    }

    pub fn tell(&self, note: Note) {
        locked(&self.notes).push(note);
        self.call_engine();
    }

    /// Everything that was reported since the last time, in order; `into` is emptied first.
    pub fn hear(&self, into: &mut Vec<Note>) {
        into.clear();
        std::mem::swap(&mut *locked(&self.notes), into);
    }

    pub fn order(&self, order: Order) {
        locked(&self.orders).push_back(order);
        self.call_reader();
    }

    pub fn next_order(&self) -> Option<Order> {
        locked(&self.orders).pop_front()
    }

    pub fn on_wake(&self, wake: Wake) {
        *locked(&self.wake) = Some(wake);
    }

    pub fn call_engine(&self) {
        let wake = locked(&self.wake).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Names the calling thread as the one that polls.
    pub fn be_reader(&self) {
        let _ = self.reader.set(std::thread::current());
    }

    /// Asks to be called again soon.
    pub fn remind(&self) {
        self.reminder.store(true, Ordering::SeqCst);
    }

    /// Calls the engine if it asked for that.
    pub fn remind_engine(&self) {
        if self.reminder.swap(false, Ordering::SeqCst) {
            self.call_engine();
        }
    }

    pub fn call_reader(&self) {
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }
}
