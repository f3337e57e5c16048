//! What the index knows about one letter, and how the records of the two topics add up to it.
//!
//! The two topics may be read in any order, and a record that this process wrote may be read a second time: a record in
//! `T.DLQ` opens its generation, a state applies to its own generation only, and the latest generation counts.

use redrive::internal::engine::LetterState;
use redrive_core::{GroupId, Reason, Time};

use super::ids::IdHash;
use super::state::{JOBS_MAX, StateRecord};

/// The position of a record in `T.DLQ`: partition and offset in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DlqPosition(u64);

impl DlqPosition {
    const NOWHERE: Self = Self(u64::MAX);

    pub fn new(partition: i32, offset: i64) -> Self {
        Self((partition as u64) << 48 | (offset as u64 & 0xffff_ffff_ffff))
    }

    pub fn partition(self) -> i32 {
        (self.0 >> 48) as i32
    }

    pub fn offset(self) -> i64 {
        (self.0 & 0xffff_ffff_ffff).cast_signed()
    }
}

/// A record of `T.DLQ`, as far as the index keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterRecord {
    pub generation: u32,
    pub place: DlqPosition,
    /// The position of its bytes in the local file.
    pub at: u64,
    pub reason: Reason,
    pub group: GroupId,
    pub dead_at: Time,
    /// The hash by which its message is found.
    pub id_hash: IdHash,
    /// The job whose copy it was.
    pub job: Option<u64>,
    pub extent: Extent,
    /// Whether it was written again at the end of the topic.
    pub moved: bool,
}

/// How much of a letter its record has. Of several records of one generation the later variant counts: a whole one before one
/// that was cut; and a tombstone before both, wherever it stands, since whoever wrote the letter again behind it had read it
/// before it was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// A part of it was left out.
    Cut,
    Whole,
    /// What stays of an erased letter.
    Tombstone,
}

/// One letter. Small: there may be a million of them.
#[derive(Clone, Debug)]
pub struct LetterEntry {
    place: DlqPosition,
    at: u64,
    dead_at: Time,
    /// The latest is last. Double boxing keeps it at one pointer for the many letters without jobs.
    #[allow(clippy::box_collection)]
    jobs: Option<Box<Vec<u64>>>,
    generation: u32,
    stated_generation: u32,
    stated: Option<LetterState>,
    /// When it entered that state.
    stated_at: Time,
    /// `None` while only states are known; such a letter is not shown.
    reason: Option<Reason>,
    /// Generations whose record was read from the topic, one bit each.
    met: u16,
    extent: Extent,
    /// In the gap that the other fields leave: it costs nothing.
    id_hash: IdHash,
    /// The group it is counted in while it is open; before that, the group of its record.
    group: GroupId,
}

impl LetterEntry {
    pub const EMPTY: Self = Self {
        place: DlqPosition::NOWHERE,
        at: 0,
        dead_at: Time::ZERO,
        jobs: None,
        generation: 0,
        stated_generation: 0,
        stated: None,
        stated_at: Time::ZERO,
        reason: None,
        met: 0,
        extent: Extent::Whole,
        id_hash: IdHash::NONE,
        group: GroupId::OTHER,
    };

    /// Whether this record says something new, so that its bytes have to be kept. Of twins, the first in the topic counts;
    /// but one with more of the letter before one with less, and the last of those that were written again.
    pub fn wants(&self, parked: &LetterRecord) -> bool {
        if self.reason.is_none() || parked.generation != self.generation {
            return self.reason.is_none() || parked.generation > self.generation;
        }
        if parked.extent != self.extent {
            return parked.extent > self.extent;
        }
        if parked.moved { parked.place > self.place } else { parked.place < self.place }
    }

    pub fn parked(&mut self, parked: &LetterRecord) {
        if self.wants(parked) {
            self.generation = parked.generation;
            self.place = parked.place;
            self.at = parked.at;
            self.dead_at = parked.dead_at;
            self.reason = Some(parked.reason);
            self.extent = parked.extent;
            self.id_hash = parked.id_hash;
            self.group = parked.group;
        }
        if let Some(job) = parked.job
            && !self.jobs().contains(&job)
        {
            // A state of this generation or a later one names the jobs that came after.
            let later = self.stated.is_some() && self.stated_generation >= parked.generation;
            self.add_jobs(&[job], later);
        }
    }

    /// Whether a record of it was read, not only states.
    pub fn is_known(&self) -> bool {
        self.reason.is_some()
    }

    /// Whether its record is truncated.
    pub fn is_cut(&self) -> bool {
        self.extent == Extent::Cut
    }

    /// Whether its record is what stays of an erased letter.
    pub fn is_tombstone(&self) -> bool {
        self.extent == Extent::Tombstone
    }

    /// Notes that a record was read from the topic. Returns whether it is a twin: a second one of its generation.
    pub fn meet(&mut self, generation: u32) -> bool {
        let bit = 1_u16.checked_shl(generation).unwrap_or(0);
        let twin = self.met & bit != 0;
        self.met |= bit;
        twin
    }

    pub fn state_is(&mut self, state: &StateRecord) {
        let later = self.stated.is_none() || state.generation > self.stated_generation;
        // A succeeded letter can only be erased, and an erased one has no later state. This process knows these states
        // before it reads the earlier ones from the topic.
        let over = match self.stated {
            Some(LetterState::Succeeded) => state.is != LetterState::Erased,
            Some(LetterState::Erased) => true,
            _ => false,
        };
        if later || (state.generation == self.stated_generation && !over) {
            self.stated = Some(state.is);
            self.stated_at = state.at;
            self.stated_generation = state.generation;
        }
        self.add_jobs(&state.jobs, state.generation < self.stated_generation);
    }

    /// Adds jobs after the known ones, or before them if later ones are known.
    fn add_jobs(&mut self, jobs: &[u64], later_are_known: bool) {
        let known = self.jobs();
        let (first, last) = if later_are_known { (jobs, known) } else { (known, jobs) };
        let mut all: Vec<u64> = first.iter().copied().filter(|job| !last.contains(job)).collect();
        all.extend_from_slice(last);
        all.drain(..all.len().saturating_sub(JOBS_MAX));
        self.jobs = (!all.is_empty()).then(|| Box::new(all));
    }

    /// Returns `None` while no record of it is known.
    pub fn state(&self) -> Option<LetterState> {
        self.reason?;
        let stated = self.stated.unwrap_or(LetterState::Open);
        Some(match self.stated_generation.cmp(&self.generation) {
            std::cmp::Ordering::Less => LetterState::Open,
            std::cmp::Ordering::Equal => stated,
            // It has died again, and that record has not been read yet: until then its copy counts as being delivered.
            std::cmp::Ordering::Greater => LetterState::Replaying,
        })
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns how often it was replayed, including a replay that is in progress or succeeded.
    pub fn replays(&self) -> u32 {
        let replayed = matches!(self.state(), Some(LetterState::Replaying | LetterState::Succeeded));
        self.generation + u32::from(replayed)
    }

    pub fn jobs(&self) -> &[u64] {
        self.jobs.as_ref().map_or(&[], |jobs| jobs.as_slice())
    }

    pub fn job(&self) -> Option<u64> {
        self.jobs().last().copied()
    }

    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// Returns when it entered its state, if it has had one since it died.
    pub fn stated_at(&self) -> Time {
        self.stated_at
    }

    pub fn dead_at(&self) -> Time {
        self.dead_at
    }

    pub fn place(&self) -> DlqPosition {
        self.place
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Counts it in this group from now on.
    pub fn set_group(&mut self, group: GroupId) {
        self.group = group;
    }

    /// Returns the hash by which its message is found, once a record of it was read.
    pub fn id_hash(&self) -> Option<IdHash> {
        self.is_known().then_some(self.id_hash)
    }

    /// Returns the position of its bytes in the local file.
    pub fn at(&self) -> u64 {
        self.at
    }
}
