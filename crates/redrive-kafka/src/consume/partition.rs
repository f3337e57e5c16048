//! The queue of one assigned partition. Records are taken out as far as there is room for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use redrive::internal::engine::ProblemKind;

use super::callbacks::ConsumerCallbacks;
use super::mailbox::{LaneStart, Mailbox, Note};
use super::room::LookAheadLimit;
use crate::client::build::Build;
use crate::record::{RecordReader, take_in};

/// Records read from one partition before the next one's turn.
const BATCH: usize = 512;

pub(super) struct PartitionReader {
    topic: Arc<str>,
    partition: i32,
    queue: PartitionQueue<ConsumerCallbacks>,
    room: Arc<LookAheadLimit>,
    /// How many records the last read returned; the next one probably returns as many.
    last: usize,
    /// Set by the queue when events have arrived.
    filled: Arc<AtomicBool>,
    stopped: bool,
}

impl PartitionReader {
    pub(super) fn new(
        start: &LaneStart,
        mut queue: PartitionQueue<ConsumerCallbacks>,
        mailbox: &Arc<Mailbox>,
    ) -> Self {
        let filled = Arc::new(AtomicBool::new(true));
        let (bell, flag) = (Arc::clone(mailbox), Arc::clone(&filled));
        queue.set_nonempty_callback(move || {
            flag.store(true, Ordering::SeqCst);
            bell.call_reader();
        });
        Self {
            topic: Arc::clone(&start.topic),
            partition: start.partition,
            queue,
            room: Arc::clone(&start.room),
            last: 0,
            filled,
            stopped: false,
        }
    }

    pub(super) fn is(&self, topic: &str, partition: i32) -> bool {
        self.partition == partition && *self.topic == *topic
    }

    /// Takes in a record that arrived by the main queue.
    pub(super) fn route(
        &self,
        reader: &RecordReader,
        record: &BorrowedMessage<'_>,
        mailbox: &Mailbox,
        epoch: u32,
        lane: usize,
    ) {
        let polled = take_in(reader, record);
        self.room.fill(1, polled.bytes);
        mailbox.tell(Note::Records { epoch, lane, records: vec![polled] });
    }

    /// Reads a batch if there are records and room for them. Returns whether there was anything.
    pub(super) fn read(&mut self, reader: &RecordReader, mailbox: &Mailbox, epoch: u32, lane: usize) -> bool {
        if self.stopped || !self.filled.load(Ordering::SeqCst) {
            return false;
        }
        let limit = self.room.left().min(BATCH);
        if limit == 0 {
            return false;
        }
        // Clear it before reading: records that arrive during the read set it again.
        self.filled.store(false, Ordering::SeqCst);
        let mut records = Vec::with_capacity(self.last.min(limit));
        let mut bytes = 0;
        let mut notes = Vec::new();
        let mut events = 0;
        while events < limit {
            let Some(event) = self.queue.poll(Duration::ZERO) else { break };
            events += 1;
            match event {
                Ok(record) => {
                    let polled = take_in(reader, &record);
                    bytes += polled.bytes;
                    records.push(polled);
                }
                Err(KafkaError::PartitionEOF(_)) => notes.push(Note::End { epoch, lane }),
                Err(error) => {
                    let (kind, problem) = problem_of(&error);
                    self.stopped = kind == ProblemKind::LostRange;
                    notes.push(Note::Stopped { epoch, lane, kind, problem });
                }
            }
        }
        if events == limit {
            self.filled.store(true, Ordering::SeqCst);
        }
        self.last = records.len();
        if !records.is_empty() {
            self.room.fill(records.len(), bytes);
            mailbox.tell(Note::Records { epoch, lane, records });
        }
        notes.into_iter().for_each(|note| mailbox.tell(note));
        events > 0
    }
}

/// Classifies an error that a partition returned instead of records. Only a lost range is final: the client retries
/// everything else by itself, so the partition continues once the cause is fixed.
fn problem_of(error: &KafkaError) -> (ProblemKind, String) {
    use RDKafkaErrorCode as Code;
    match error.rdkafka_error_code() {
        Some(code @ (Code::AutoOffsetReset | Code::OffsetOutOfRange)) => {
            let text = format!(
                "records that were not delivered are gone ({code}); look with `redrive audit`, then move the group's offset \
                 with kafka-consumer-groups.sh and start again"
            );
            (ProblemKind::LostRange, text)
        }
        Some(Code::NotImplemented) => {
            let known = Build::of_this().compression.join(", ");
            let text = format!(
                "its next records are compressed in a way that this build cannot read; it has {known}"
            );
            (ProblemKind::Decode, text)
        }
        Some(code @ (Code::BadCompression | Code::BadMessage | Code::InvalidMessage)) => {
            (ProblemKind::Decode, format!("its next records cannot be decoded: {code}"))
        }
        _ => (ProblemKind::Read, format!("it cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_range_stops_a_partition_for_good() {
        let kind = |code| problem_of(&KafkaError::MessageConsumption(code)).0;
        assert_eq!(kind(RDKafkaErrorCode::AutoOffsetReset), ProblemKind::LostRange);
        assert_eq!(kind(RDKafkaErrorCode::BadCompression), ProblemKind::Decode);
        assert_eq!(kind(RDKafkaErrorCode::NotImplemented), ProblemKind::Decode);
        assert_eq!(kind(RDKafkaErrorCode::TopicAuthorizationFailed), ProblemKind::Read);
    }
}
