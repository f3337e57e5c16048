//! Stores what librdkafka's callbacks report. They decide nothing: the polling thread looks here afterwards.
//!
//! A change of the assignment is only recorded. The polling thread calls `assign` and `unassign` later, because
//! committed offsets have to be fetched first, because splitting partition queues needs the consumer, and because
//! running deliveries should finish before their partition goes.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;

use crate::client::problems::{ProblemLog, log};
use crate::locked::locked;

#[derive(Debug)]
pub enum AssignmentChange {
    Assign(TopicPartitionList),
    Revoke,
}

/// Where a partition ends.
#[derive(Debug)]
pub struct EndOf {
    pub topic: String,
    pub partition: i32,
    pub end: u64,
    /// Whether the client has fetched everything before it.
    pub is_met: bool,
}

/// Statistics older than this do not count; the client sends them once a second.
const SILENT_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct ConsumerCallbacks {
    changes: Mutex<VecDeque<AssignmentChange>>,
    ends: Mutex<Vec<EndOf>>,
    /// The consumer is being closed: assignment changes are no longer processed.
    closing: AtomicBool,
    problems: ProblemLog,
    /// What the client last reported about its membership, and when.
    membership: Mutex<Option<(bool, Instant)>>,
}

impl ConsumerCallbacks {
    pub fn next_change(&self) -> Option<AssignmentChange> {
        locked(&self.changes).pop_front()
    }

    pub fn ends(&self) -> Vec<EndOf> {
        std::mem::take(&mut *locked(&self.ends))
    }

    /// Whether the client reports that it is a member of its group; false if it has reported nothing for too long,
    /// `None` if it has never reported anything.
    pub fn is_member(&self, now: Instant) -> Option<bool> {
        let (is_member, at) = (*locked(&self.membership))?;
        Some(is_member && now.duration_since(at) < SILENT_MAX)
    }

    /// Logs a problem that the consumer reported.
    pub fn met(&self, error: &KafkaError, reason: &str) {
        if let Some(times) = self.problems.times(error, Instant::now()) {
            tracing::warn!(%error, reason, times, "the Kafka consumer has a problem; it recovers by itself");
        }
    }

    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }
}

impl ClientContext for ConsumerCallbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // librdkafka reports the end of a partition as an error, but it is none.
        if matches!(error, KafkaError::Global(RDKafkaErrorCode::PartitionEOF)) {
            return;
        }
        self.met(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        if let Some(group) = &statistics.cgrp {
            let is_member = group.state == "up" && group.join_state == "steady";
            *locked(&self.membership) = Some((is_member, Instant::now()));
        }
        let mut ends = locked(&self.ends);
        ends.clear();
        for (topic, of_topic) in statistics.topics {
            for (partition, of_partition) in of_topic.partitions {
                let end = of_partition.ls_offset.max(of_partition.hi_offset.min(of_partition.ls_offset));
                if partition >= 0 && end >= 0 {
                    let is_met = of_partition.eof_offset >= end;
                    ends.push(EndOf { topic: topic.clone(), partition, end: end as u64, is_met });
                }
            }
        }
    }
}

impl ConsumerContext for ConsumerCallbacks {
    fn rebalance(
        &self,
        base_consumer: &BaseConsumer<Self>,
        err: RDKafkaRespErr,
        tpl: &mut TopicPartitionList,
    ) {
        if self.closing.load(Ordering::SeqCst) {
            if let Err(error) = base_consumer.unassign() {
                tracing::debug!(%error, "letting partitions go at the end");
            }
            return;
        }
        let change = match err {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => AssignmentChange::Assign(tpl.clone()),
            _ => AssignmentChange::Revoke,
        };
        locked(&self.changes).push_back(change);
    }
}
