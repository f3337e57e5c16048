//! Late copies: written for an assignment that is over, by this process or another one, and acknowledged only after the
//! record they replace was assigned again.
//!
//! A producer that lost its broker resumes sending when it is back, and so does a process that was frozen. By then the
//! new owner may have read the tiers to their ends. Each copy says which record it replaces (`x-from`), so both are
//! still known to be one message: if the record has not started, the copy replaces it; if it has, it goes on and the
//! copy is skipped.

use redrive_core::Time;

use crate::backlog::lane::PartitionLane;
use crate::backlog::lanes::Lanes;
use crate::record::Replaces;
use crate::topics::LaneKind;

/// Whether the record of a lane at an offset is being replaced by a copy that is not acknowledged yet.
pub(crate) type IsReplacing<'a> = &'a dyn Fn(usize, u64) -> bool;

/// The state here of the record that a copy replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    /// It is not ours, or was done before we got its partition: only the copy remains.
    Elsewhere,
    /// It has not been read yet.
    Ahead,
    /// It waits for its turn.
    Waits { lane: usize },
    /// It was handed out in this assignment: it runs, or is finished.
    Started,
}

pub(super) fn replaced(lanes: &Lanes, replaces: Replaces, is_replacing: IsReplacing<'_>) -> Replaced {
    let Replaces { topic, partition, offset } = replaces;
    let found = lanes.iter().position(|lane| lane.partition == partition && lane.topic_hash == topic);
    let Some(at) = found else { return Replaced::Elsewhere };
    let lane = &lanes[at];
    if lane.done_before.contains(offset) {
        Replaced::Elsewhere
    } else if lane.done.contains(offset) || lane.out.contains_key(&offset) || is_replacing(at, offset) {
        Replaced::Started
    } else if offset >= lane.next {
        Replaced::Ahead
    } else {
        Replaced::Waits { lane: at }
    }
}

/// Whether the record at this offset of a source is another message than the copy: a topic that was deleted and
/// recreated has the same offsets.
pub(super) fn is_older_topic(lane: &PartitionLane, offset: u64, created: Time) -> bool {
    if lane.kind != LaneKind::Source {
        return false;
    }
    let at = lane.fifo.partition_point(|waiting| waiting.offset < offset);
    lane.fifo.get(at).is_none_or(|waiting| waiting.offset != offset || waiting.meta.created != created)
}
