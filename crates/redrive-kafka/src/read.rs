//! The polling thread's side of reading: records of partitions that have some, and room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use redrive::engine::ProblemKind;

use crate::mailbox::Note;
use crate::poll::Polling;
use crate::waiting;

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
                    let polled = waiting::read(&self.reader, &record);
                    bytes += polled.bytes;
                    records.push(polled);
                }
                Err(KafkaError::PartitionEOF(_)) => notes.push(Note::End { epoch, lane }),
                Err(KafkaError::MessageConsumption(
                    code @ (RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange),
                )) => {
                    reading.stopped = true;
                    let problem = format!(
                        "records that were not delivered are gone ({code}); look with `redrive audit`, then move the \
                         group's offset with kafka-consumer-groups.sh and start again"
                    );
                    notes.push(Note::Stopped { epoch, lane, kind: ProblemKind::LostRange, problem });
                }
                Err(error) => {
                    tracing::warn!(%error, topic = %reading.topic, partition = reading.partition, "reading");
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
