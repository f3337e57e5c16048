//! Groups of dead letters: which letters belong together, how many of them are open, and what was decided about them.
//!
//! A letter is stored with its fingerprint. An engine counts open letters by group as they come and go, so that nobody has
//! to look through them; what people decided about a group is a mark beside the letters.
//!
//! - `grouping`: the fingerprint of a letter
//! - `open`: open letters by group, for engines that have them in memory; `rate`: how fast they come
//! - `mark`: what was decided about a group, and the state that follows; `marks`: all of them
//! - `list`: groups with their states, as they are shown

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

/// Groups that are counted one by one in a pipeline; open letters of further ones are counted as [`GroupId::OTHER`].
pub const GROUPS_MAX: usize = 1_000;

/// The open letters of one group, as its engine counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFigures {
    /// The group.
    pub group: GroupId,
    /// Open letters.
    pub open: u64,
    /// The letter that has been open for longest, and when it died.
    pub oldest: Option<(Time, u64)>,
    /// Letters that died within the last minute.
    pub per_minute: u64,
}
