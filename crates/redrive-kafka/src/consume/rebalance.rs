//! The polling thread's side of membership: partitions are revoked and assigned, and the member rejoins when it was
//! fenced or its client is stuck.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::commit::committer::Committer;
use crate::consume::assign::{self, Begun};
use crate::consume::begin;
use crate::consume::callbacks::AssignmentChange;
use crate::consume::mailbox::{Assigned, FailKind, Note, PartitionCommit};
use crate::consume::membership::{ABSENT_MAX, JOIN_AGAIN_AFTER, UNANSWERED_MAX, join};
use crate::consume::partition::PartitionReader;
use crate::consume::plan::AssignFault;
use crate::consume::poll::Polling;
use crate::topics::{EXTEND_TIERS, TopicsFault};

/// How much later than the engine's own deadline the polling thread gives up waiting for it.
const RELEASE_GRACE: Duration = Duration::from_secs(2);
const ASSIGN_AGAIN_AFTER: Duration = Duration::from_millis(300);

impl Polling {
    pub(super) fn change_assignment(&mut self) {
        while let Some(change) = self.consumer.context().next_change() {
            match change {
                AssignmentChange::Assign(list) => self.assigning = Some((list, Instant::now())),
                AssignmentChange::Revoke => {
                    self.assigning = None;
                    if self.lanes.is_empty() {
                        self.let_go();
                    } else if self.consumer.assignment_lost() {
                        tracing::warn!(
                            "the group continued without this member; what it had in flight will be redelivered"
                        );
                        self.let_go();
                    } else {
                        self.releasing = Some(Instant::now() + self.drain + RELEASE_GRACE);
                        self.mailbox.tell(Note::Wanted { epoch: self.epoch });
                    }
                }
            }
        }
        if let Some(until) = self.releasing
            && (Instant::now() > until || self.consumer.assignment_lost())
        {
            tracing::warn!(
                "partitions revoked before everything in flight was settled; it will be redelivered"
            );
            self.let_go();
        }
        if let Some((list, at)) = self.assigning.take() {
            if Instant::now() < at {
                self.assigning = Some((list, at));
            } else {
                self.assign(list);
            }
        }
    }

    pub(super) fn release(&mut self, places: &[PartitionCommit]) {
        if let Some(problem) = self.commit_and_wait(places) {
            tracing::warn!(
                problem,
                "the last commit before partitions were revoked failed; some deliveries will repeat"
            );
        }
        self.let_go();
    }

    /// Makes the group reassign its partitions, once, because some of them have no owner.
    fn rejoin(&mut self) {
        tracing::warn!(source = %self.plan.source, "the topics have partitions that no member was given; joining again");
        self.consumer.unsubscribe();
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        if let Err(error) = self.consumer.subscribe(&topics) {
            self.mailbox.tell(Note::Failed { problem: error.to_string(), kind: FailKind::Unavailable });
        }
    }

    fn let_go(&mut self) {
        self.releasing = None;
        self.committing = None;
        self.lanes.clear();
        if let Err(error) = self.consumer.unassign() {
            tracing::warn!(%error, "letting partitions go");
        }
        self.mailbox.tell(Note::Gone { epoch: self.epoch });
    }

    fn assign(&mut self, list: TopicPartitionList) {
        let began = match assign::begin(&self.consumer, &self.plan, &list) {
            Ok(began) => began,
            Err(AssignFault::Kafka(error)) => {
                tracing::warn!(%error, "new partitions cannot begin yet; asking again");
                self.assigning = Some((list, Instant::now() + ASSIGN_AGAIN_AFTER));
                return;
            }
            Err(fault) => {
                let kind = match &fault {
                    AssignFault::RanBefore(_) => FailKind::Refused(begin::SAY_WHERE),
                    AssignFault::NoStart { .. } => FailKind::Refused("choose where it begins"),
                    AssignFault::Topics(TopicsFault::Uneven(_)) => FailKind::Refused(EXTEND_TIERS),
                    AssignFault::Kafka(_) | AssignFault::Topics(_) => FailKind::Unavailable,
                };
                self.mailbox.tell(Note::Failed { problem: fault.to_string(), kind });
                return;
            }
        };
        let Begun { lanes: began, partitions, letter_ends, died, is_first, has_orphans, overtaken } = began;
        let mut places = TopicPartitionList::with_capacity(began.len());
        for lane in &began {
            let offset = Offset::Offset(lane.done.prefix().cast_signed());
            if let Err(error) = places.add_partition_offset(&lane.topic, lane.partition, offset) {
                tracing::error!(%error, topic = %lane.topic, "an offset that cannot be");
            }
        }
        // Before the assignment: a queue stays split, and then nothing arrives by the main queue, where the ends of
        // different partitions could not be told apart.
        self.lanes.clear();
        for lane in &began {
            let Some(queue) = self.consumer.split_partition_queue(&lane.topic, lane.partition) else {
                tracing::error!(topic = %lane.topic, partition = lane.partition, "a partition without a queue");
                continue;
            };
            self.lanes.push(PartitionReader::new(lane, queue, &self.mailbox));
        }
        if let Err(error) = self.consumer.assign(&places) {
            tracing::warn!(%error, "assigning partitions");
            self.lanes.clear();
            self.assigning = Some((list, Instant::now() + ASSIGN_AGAIN_AFTER));
            return;
        }
        self.epoch = self.epoch.wrapping_add(1);
        let epoch = self.epoch;
        let began = Assigned { lanes: began, partitions, letter_ends, died, is_first, overtaken };
        self.mailbox.tell(Note::Assigned { epoch, began: Box::new(began) });
        // Only now, because the assignment had to be answered first.
        if has_orphans && !self.rejoined {
            self.rejoined = true;
            self.rejoin();
        }
    }

    /// Whether the member is outside its group for now, so that there is nothing to poll.
    pub(super) fn is_out(&mut self) -> bool {
        match self.fenced.joining_at {
            None => false,
            Some(at) => {
                if Instant::now() >= at {
                    self.join_again();
                }
                true
            }
        }
    }

    /// Handles a fence. Returns whether another process has replaced this member for good.
    pub(super) fn was_replaced(&mut self) -> bool {
        let now = Instant::now();
        if self.fenced.joining_at.is_some() {
            return false;
        }
        if self.fenced.again(now) {
            return true;
        }
        tracing::warn!("the group has replaced this member; it joins again in a moment");
        self.step_back(now + JOIN_AGAIN_AFTER);
        false
    }

    /// Detects a stuck client. It reports nothing: it is in no group, and no records arrive.
    pub(super) fn look_for_group(&mut self) {
        let now = Instant::now();
        // The group has assigned partitions, but their offsets cannot be read.
        let is_unanswered = self.assigning.is_some();
        let is_member = self.releasing.is_some() || self.consumer.context().is_member(now).unwrap_or(true);
        self.mailbox.note_membership(is_member && !is_unanswered && !self.lanes.is_empty());
        let patience = if is_unanswered { UNANSWERED_MAX } else { ABSENT_MAX };
        if self.absent.for_too_long(is_member && !is_unanswered, patience, now) {
            let seconds = patience.as_secs();
            tracing::warn!(
                "for {seconds} s this member has been in no group, or has had no answer; it joins again with a new client"
            );
            self.step_back(now);
        }
    }

    fn step_back(&mut self, joining_at: Instant) {
        self.mailbox.note_membership(false);
        self.fenced.joining_at = Some(joining_at);
        // The partitions are another member's already: there is nothing to drain or commit.
        self.assigning = None;
        self.releasing = None;
        self.committing = None;
        self.lanes.clear();
        self.mailbox.tell(Note::Gone { epoch: self.epoch });
    }

    /// Replaces the consumer, which is useless after a fatal error.
    fn join_again(&mut self) {
        let joined = join(&self.config, &self.topics, &self.mailbox)
            .and_then(|consumer| Ok((Committer::start(&consumer, &self.mailbox)?, consumer)));
        match joined {
            Ok((committer, consumer)) => {
                self.consumer.context().close();
                let old = std::mem::replace(&mut self.consumer, consumer);
                let mut commits = std::mem::replace(&mut self.committer, committer);
                // Dropping the old consumer waits for its threads.
                self.ending.spawn("end-consumer", move || {
                    commits.end();
                    drop(old);
                });
                self.fenced.joining_at = None;
            }
            Err(error) => {
                tracing::warn!(%error, "the group cannot be joined again yet");
                self.fenced.joining_at = Some(Instant::now() + JOIN_AGAIN_AFTER);
            }
        }
    }
}
