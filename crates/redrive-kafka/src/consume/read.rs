//! The polling thread's side of reading: records of partitions that have some, and room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use redrive::engine::ProblemKind;

use crate::client::build::Build;
use crate::consume::mailbox::Note;
use crate::consume::poll::Polling;
use crate::record::take_in;

/// Records of one partition before the next one has its turn.
const BATCH: usize = 512;

impl Polling {
    /// Reads from every partition that has records and room. Whether there was anything.
    pub(crate) fn read_lanes(&mut self) -> bool {
        if self.releasing.is_some() {
            return false;
        }
        let mut any = false;
        for lane in 0..self.lanes.len() {
            any |= self.read_lane(lane);
        }
        any
    }

    fn read_lane(&mut self, lane: usize) -> bool {
        let reading = &mut self.lanes[lane];
        if reading.stopped || !reading.filled.load(Ordering::SeqCst) {
            return false;
        }
        let limit = reading.room.left().min(BATCH);
        if limit == 0 {
            return false;
        }
        // Before reading: what comes while we read sets it again.
        reading.filled.store(false, Ordering::SeqCst);
        let epoch = self.epoch;
        let mut records = Vec::with_capacity(reading.last.min(limit));
        let mut bytes = 0;
        let mut notes = Vec::new();
        let mut events = 0;
        while events < limit {
            let Some(event) = reading.queue.poll(Duration::ZERO) else { break };
            events += 1;
            match event {
                Ok(record) => {
                    let polled = take_in(&self.reader, &record);
                    bytes += polled.bytes;
                    records.push(polled);
                }
                Err(KafkaError::PartitionEOF(_)) => notes.push(Note::End { epoch, lane }),
                Err(error) => {
                    let (kind, problem) = problem_of(&error);
                    reading.stopped = kind == ProblemKind::LostRange;
                    notes.push(Note::Stopped { epoch, lane, kind, problem });
                }
            }
        }
        if events == limit {
            reading.filled.store(true, Ordering::SeqCst);
        }
        reading.last = records.len();
        if !records.is_empty() {
            reading.room.fill(records.len(), bytes);
            self.mailbox.tell(Note::Records { epoch, lane, records });
        }
        notes.into_iter().for_each(|note| self.mailbox.tell(note));
        events > 0
    }
}

/// What it means that a partition gives an error instead of records. Only what is lost stays lost: everything else is asked
/// for again by the client itself, so the partition goes on once somebody has acted.
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
