//! Copies that come late: written for an assignment that is over, by this process or by another one, and acknowledged only
//! after the record they replace was given out anew.
//!
//! A producer that lost its broker goes on sending when it is back, and so does a process that was frozen. By then whoever
//! has the partition may have read the tiers to their ends. Each copy says which record it replaces (`x-from`), so the two
//! are still told to be one message: if the record has not started, the copy takes its place; if it has, it goes on and
//! the copy is passed over.

use redrive_core::Time;

use super::engine::{KafkaEngine, Then};
use crate::backlog::keys::hash_of;
use crate::duplicates::twins::Meeting;
use crate::record::Replaces;
use crate::record::{CopyRecord, Origin};
use crate::record::{Waiting, number_of};
use crate::topics::LaneKind;

/// How the record that a copy replaces stands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaced {
    /// It is not ours, or was done with before we got its partition: the copy is all there is.
    Elsewhere,
    /// It was not read yet.
    Ahead,
    /// It waits for its turn.
    Waits { lane: usize },
    /// It is handed out, or was, in this assignment: it goes on, or has come to its end.
    Started,
}

impl KafkaEngine {
    fn replaced(&self, replaces: Replaces) -> Replaced {
        let Replaces { topic, partition, offset } = replaces;
        let lane = self.lanes.iter().position(|lane| lane.partition == partition && lane.topic_hash == topic);
        let Some(at) = lane else { return Replaced::Elsewhere };
        let lane = &self.lanes[at];
        let copied = |then: &Then| matches!(then, Then::Mark { lane, epoch, offset: of, .. } if (*lane, *epoch, *of) == (at, self.epoch, offset));
        if lane.done_before.contains(offset) {
            Replaced::Elsewhere
        } else if lane.done.contains(offset)
            || lane.out.contains_key(&offset)
            || self.outbox.pending().any(copied)
        {
            Replaced::Started
        } else if offset >= lane.next {
            Replaced::Ahead
        } else {
            Replaced::Waits { lane: at }
        }
    }

    /// What a copy that this assignment did not write is to the record it replaces.
    pub(crate) fn meet_late(&mut self, at: usize, waiting: &Waiting, replaces: Replaces) -> Meeting {
        match self.replaced(replaces) {
            Replaced::Elsewhere => Meeting::First,
            Replaced::Ahead => {
                // Who comes from the source is compared when it is read.
                if waiting.number == number_of(replaces.partition, replaces.offset.cast_signed()) {
                    self.twins.expect_source(waiting.number, &waiting.meta, at, waiting.offset);
                }
                Meeting::First
            }
            Replaced::Waits { lane } if self.is_older_topic(lane, replaces.offset, waiting.meta.created) => {
                Meeting::First
            }
            Replaced::Waits { lane } => Meeting::Further { lane, offset: replaces.offset },
            Replaced::Started => Meeting::Behind,
        }
    }

    /// A letter that this process wrote for an earlier assignment is safe: its record, if it has come back to us and
    /// waits, is done with.
    pub(crate) fn late_letter(&mut self, from: &Origin, copy: &CopyRecord) {
        let replaces = Replaces::place(from);
        let Replaced::Waits { lane } = self.replaced(replaces) else { return };
        if self.is_older_topic(lane, replaces.offset, copy.meta.created) {
            return;
        }
        self.mark(lane, replaces.offset, None);
        self.pass_over_these(&[(lane, replaces.offset)]);
        let key = self.is_ordered().then(|| hash_of(&copy.message)).flatten();
        self.died(key, copy.origin.number());
    }

    /// Whether the record at this place of a source is another message than the copy: a topic that was deleted and made
    /// again has the same places.
    fn is_older_topic(&self, lane: usize, offset: u64, created: Time) -> bool {
        let lane = &self.lanes[lane];
        if lane.kind != LaneKind::Source {
            return false;
        }
        let at = lane.fifo.partition_point(|waiting| waiting.offset < offset);
        lane.fifo.get(at).is_none_or(|waiting| waiting.offset != offset || waiting.meta.created != created)
    }
}
