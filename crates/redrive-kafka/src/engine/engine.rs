//! The engine of one pipeline: its parts. What it does is in the files beside this one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::engine::numbers::NumberMap;
use redrive::engine::{Delivery, EngineError, Ordering, Settlement, StoreOptions, Ticket};
use redrive_core::Time;

use super::flow::Traffic;
use super::meeting::PassedOver;
use super::unwritten::Unwritten;
use crate::backlog::keys::Keys;
use crate::backlog::lane::Lane;
use crate::backlog::lookahead::LookAhead;
use crate::commit::tickets::Tickets;
use crate::consume::mailbox::{FailKind, Mailbox, Note};
use crate::consume::poll::Poller;
use crate::crash::reservation::Advance;
use crate::crash::started::Started;
use crate::crash::suspects::Suspected;
use crate::duplicates::died::Died;
use crate::duplicates::twins::Twins;
use crate::group::control::Control;
use crate::group::standing::Watcher;
use crate::letters::Letters;
use crate::options::KafkaPipeline;
use crate::produce::outbox::Outbox;
use crate::produce::spool::Spool;
use crate::produce::{Ended, Production};
use crate::topics::trim::Trimmer;

/// A topic that copies are written to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub name: Arc<str>,
    pub partitions: i32,
}

impl Target {
    /// The partition for messages of a source partition.
    pub fn partition(&self, origin: i32) -> i32 {
        origin.rem_euclid(self.partitions.max(1))
    }
}

/// What follows when a copy is acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// The record it replaces is done with.
    Mark {
        lane: usize,
        epoch: u32,
        offset: u64,
        key: Option<u64>,
        number: u64,
        ticket: Option<Ticket>,
        what: What,
    },
    /// A part of what is done is in `T.progress`.
    Progress { lane: usize, epoch: u32 },
    /// A record came out of the spool, and its file can go.
    Spooled(PathBuf),
    /// A bitmap is not needed any more.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Retry {
        due: Time,
    },
    Dead,
    /// A replayed letter was delivered; `replays` counts this replay.
    Succeeded {
        replays: u32,
    },
}

/// How the assigned partitions stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Ours,
    /// Others want them, and wait until then for what is in flight.
    Wanted {
        until: Instant,
    },
    /// They may have them; that they are gone will be told.
    LetGo,
}

/// How the last commit of all ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastCommit {
    Kept,
    Failed(String),
}

/// The Kafka engine of one pipeline. See [`crate::stores::KafkaStores`] for how it is made.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with each other")]
pub struct KafkaEngine {
    pub(crate) pipeline: KafkaPipeline,
    pub(crate) options: StoreOptions,
    pub(crate) source: Arc<str>,
    pub(crate) group: String,
    pub(crate) tiers: Vec<(Duration, Target)>,
    pub(crate) replay_topic: Target,
    pub(crate) dlq: Target,
    pub(crate) dlq_state: Target,
    pub(crate) progress: Target,

    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) poller: Poller,
    pub(crate) outbox: Outbox<Then>,
    pub(crate) letters: Letters,
    /// What holds for the whole group.
    pub(crate) control: Control,
    pub(crate) watcher: Watcher,
    pub(crate) traffic: Traffic,
    /// This process, as others see it.
    pub(crate) name: String,
    pub(crate) spool: Spool,
    /// Partitions that are held because something of theirs cannot be written.
    pub(crate) unwritten: Unwritten,
    /// Letters and successes that are not acknowledged: their messages are not at their end.
    pub(crate) ending: BTreeSet<u64>,
    /// Cuts off what is done as long as it lives.
    pub(crate) _trimmer: Trimmer,

    pub(crate) epoch: u32,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) by_name: HashMap<(Arc<str>, i32), usize>,
    /// Of partitions that went: who was suspected. Nobody forgets that by losing them.
    pub(crate) suspected_before: HashMap<(Arc<str>, i32), Suspected>,
    pub(crate) ahead: LookAhead,
    /// Copies that are acknowledged and not read yet, by due, lane and offset.
    pub(crate) under_way: BTreeSet<(u64, usize, u64)>,
    /// Letters that were put back here and not read yet, with their due.
    pub(crate) put_back: NumberMap<u64, Time>,
    /// Retries whose copies are not acknowledged.
    pub(crate) copying: BTreeSet<(u64, u64)>,
    pub(crate) keys: Keys,
    /// Keys whose order could not be kept, since the start.
    pub(crate) key_order_voided: u64,
    /// Partitions whose tiers have to be read before anything of them may start.
    pub(crate) held_back: HashSet<i32>,
    pub(crate) twins: Twins,
    /// Where the letters ended when the partitions were assigned.
    pub(crate) letter_ends: Vec<(i32, i64)>,
    /// The last letters of the owners before.
    pub(crate) died: Died,
    /// Records that were not delivered because another record of their message goes on.
    pub(crate) passed_over: PassedOver,
    /// Set after a gap in which others may have been given the partitions: nothing is started before a commit later than
    /// this round is answered.
    pub(crate) unsure: Option<u64>,
    /// Batches that were given meanwhile.
    pub(crate) unsettled: Vec<(Ticket, Vec<Settlement>)>,
    pub(crate) heard: Instant,
    /// A gap of this length between two looks makes unsure.
    pub(crate) gap_max: Duration,

    pub(crate) dues: DueReserve,
    pub(crate) started: Started,
    /// A local file for [`redrive::engine::Engine::keep_reminder`].
    pub(crate) reminder: PathBuf,
    /// The share of the work that was not told yet.
    pub(crate) share: Option<(u32, u32)>,

    pub(crate) tickets: Tickets,
    pub(crate) committing: Option<Committing>,
    /// Whether the last commit failed: then nobody hurries.
    pub(crate) refused: bool,
    pub(crate) rounds: u64,
    pub(crate) commit_every: Duration,
    pub(crate) last_commit: Instant,
    pub(crate) last_progress: Instant,
    pub(crate) last_tending: Instant,
    pub(crate) last_watch: Instant,
    pub(crate) tend_every: Duration,
    pub(crate) straggler_after: Duration,
    pub(crate) claim: Claim,
    pub(crate) drain: Duration,

    pub(crate) now: Time,
    pub(crate) gated: bool,
    pub(crate) odd_to_due: bool,
    pub(crate) next_source: usize,
    pub(crate) failed: Option<(String, FailKind)>,
    pub(crate) closed: bool,
    pub(crate) last_answer: Option<LastCommit>,
    pub(crate) notes: Vec<Note>,
    pub(crate) ended: Vec<(Production<Then>, Ended)>,
}

/// A commit that is not answered yet.
#[derive(Debug)]
pub(crate) struct Committing {
    pub round: u64,
    pub epoch: u32,
    pub lanes: Vec<Covered>,
}

/// What a commit says of a lane.
#[derive(Debug)]
pub(crate) struct Covered {
    pub lane: usize,
    /// The marks at that time.
    pub marks: u64,
    pub offset: u64,
    /// Whether everything beyond the offset is said.
    pub whole: bool,
    /// What is reserved, by offset and by due.
    pub reserved: (u64, u64),
    /// What was known of suspects.
    pub changes: u64,
}

/// What may be handed out of all tiers together, in the order of their due times.
#[derive(Debug, Default)]
pub(crate) struct DueReserve {
    pub advance: Advance,
    pub handed: u64,
    /// Whether something was due and not reserved.
    pub starved: bool,
    pub looked: Option<Instant>,
}

impl KafkaEngine {
    /// How long marks may wait for a commit; 100 ms unless set.
    pub fn commit_every(&mut self, span: Duration) {
        self.commit_every = span;
    }

    /// How long a waiting message may hold the committed offset up before it is written again; ten minutes unless set.
    pub fn move_stragglers_after(&mut self, span: Duration) {
        self.straggler_after = span;
        self.tend_every = self.tend_every.min(span);
    }

    /// How soon records of the spool are offered again; half a minute unless set.
    pub fn offer_spooled_every(&mut self, span: Duration) {
        self.spool.offer_every(span, Instant::now());
    }

    /// The first offset of a partition that was not read yet; `None` if the partition is not ours.
    pub fn read_up_to(&self, topic: &str, partition: i32) -> Option<u64> {
        let lane = self.lanes.iter().find(|lane| lane.partition == partition && *lane.topic == *topic)?;
        Some(lane.next)
    }

    /// Whether a delivery was handed out by this engine and is not settled.
    pub fn owns(&self, delivery: &Delivery) -> bool {
        let receipt = &delivery.receipt;
        let lane = self.lanes.get(receipt.lane as usize).filter(|_| receipt.epoch == self.epoch);
        lane.is_some_and(|lane| lane.out.contains_key(&receipt.at))
    }

    /// Whether partitions are assigned and each was read to its end once, and all letters are known.
    pub fn has_caught_up(&self) -> bool {
        self.letters.are_loaded()
            && self.control.is_known()
            && !self.lanes.is_empty()
            && self.claim == Claim::Ours
            && self.lanes.iter().all(Lane::has_ended)
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.options.ordering == Ordering::Key
    }

    /// Whether the engine can go on.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        match &self.failed {
            None => Ok(()),
            Some((problem, FailKind::Owned)) => Err(EngineError::Owned(problem.clone())),
            Some((problem, FailKind::Unavailable)) => Err(EngineError::Unavailable(problem.clone())),
            Some((problem, FailKind::Refused(fix))) => {
                Err(EngineError::Directory { problem: problem.clone(), fix })
            }
        }
    }

    pub(crate) fn fail(&mut self, problem: String, kind: FailKind) {
        tracing::error!(pipeline = %self.pipeline.name, problem, "the Kafka engine stops");
        self.failed.get_or_insert((problem, kind));
    }
}

impl Drop for KafkaEngine {
    /// Without [`redrive::engine::Engine::close`] it ends as a process that dies: nothing more is committed.
    fn drop(&mut self) {
        self.poller.abort();
    }
}
