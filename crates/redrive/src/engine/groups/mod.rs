//! Groups of dead letters: which letters belong together, how many of them are open, and what was decided about them.
//!
//! A letter is stored with its fingerprint. An engine counts open letters by group as they come and go, so no query has
//! to walk through them; decisions about a group are stored as marks beside the letters.
//!
//! - `grouping`: the fingerprint of a letter
//! - `open`: open letters by group, for engines that keep them in memory; `rate`: how fast they arrive
//! - `mark`: a decision about a group, and the state that follows; `marks`: all of them
//! - `list`: groups with their states, as they are listed

pub mod grouping;
pub mod list;
pub mod mark;
pub mod marks;
pub mod open;
pub mod rate;

pub use grouping::Grouping;
pub use list::GroupSummary;
pub use mark::{GroupMark, GroupState, Handling};
pub use marks::GroupMarks;
pub use open::OpenGroups;
pub use rate::ArrivalRate;

use redrive_core::{GroupId, Time};

/// The number of groups in a pipeline with their own counter; open letters of further groups count as
/// [`GroupId::OTHER`].
pub const GROUPS_MAX: usize = 1_000;

/// The open letters of one group, as its engine counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFigures {
    /// The group.
    pub group: GroupId,
    /// Open letters.
    pub open: u64,
    /// The letter that has been open longest, and when it died.
    pub oldest: Option<(Time, u64)>,
    /// Letters that died within the last minute.
    pub per_minute: u64,
}
