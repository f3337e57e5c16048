//! The polling thread's side of a rebalance: partitions are wanted and let go, come and begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::consume::assign::{self, Begun};
use crate::consume::begin;
use crate::consume::callbacks::Change;
use crate::consume::mailbox::{Assigned, FailKind, Note, PartitionCommit};
use crate::consume::plan::AssignFault;
use crate::consume::poll::{Polling, Reading};
use crate::topics::{EXTEND_TIERS, TopicsFault};

/// How much later than the engine the polling thread gives up on it.
const RELEASE_GRACE: Duration = Duration::from_secs(2);
const ASSIGN_AGAIN_AFTER: Duration = Duration::from_millis(300);

impl Polling {
    pub(crate) fn change_assignment(&mut self) {
        while let Some(change) = self.consumer.context().next_change() {
            match change {
                Change::Assign(list) => self.assigning = Some((list, Instant::now())),
                Change::Revoke => {
                    self.assigning = None;
                    if self.lanes.is_empty() {
                        self.let_go();
                    } else if self.consumer.assignment_lost() {
                        tracing::warn!(
                            "the group went on without this member; what it had in flight is delivered again"
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
                "partitions go before everything in flight was settled; it will be delivered again"
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

    pub(crate) fn release(&mut self, places: &[PartitionCommit]) {
        if let Some(problem) = self.commit_and_wait(places) {
            tracing::warn!(problem, "the last commit before partitions go failed; some deliveries repeat");
        }
        self.let_go();
    }

    /// Makes the group assign its partitions anew, once: there are some that nobody reads.
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
                    AssignFault::NoStart { .. } => FailKind::Refused("say where it begins"),
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
        // Before the assignment: a queue that was split stays so, and nothing comes by the main queue, where the end of a
        // partition could not be told from that of another.
        self.lanes.clear();
        for lane in &began {
            let Some(mut queue) = self.consumer.split_partition_queue(&lane.topic, lane.partition) else {
                tracing::error!(topic = %lane.topic, partition = lane.partition, "a partition without a queue");
                continue;
            };
            let filled = Arc::new(AtomicBool::new(true));
            let (bell, flag) = (Arc::clone(&self.mailbox), Arc::clone(&filled));
            queue.set_nonempty_callback(move || {
                flag.store(true, Ordering::SeqCst);
                bell.call_reader();
            });
            self.lanes.push(Reading {
                topic: Arc::clone(&lane.topic),
                partition: lane.partition,
                queue,
                room: Arc::clone(&lane.room),
                last: 0,
                filled,
                stopped: false,
            });
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
        // Only now: the assignment had to be answered first.
        if has_orphans && !self.rejoined {
            self.rejoined = true;
            self.rejoin();
        }
    }
}
