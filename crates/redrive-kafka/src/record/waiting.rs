//! A message that waits in memory, whatever topic its record is in.

use std::sync::Arc;
use std::time::Instant;

use rdkafka::Message as _;
use rdkafka::message::BorrowedMessage;
use redrive::internal::engine::history::History;
use redrive_core::{Message, Meta, Reason, Time};

use crate::record::Replaces;
use crate::record::{CopyRecord, Origin, Read, RecordReader};

#[derive(Clone, Debug)]
pub struct WaitingMessage {
    /// The offset of its record.
    pub offset: u64,
    /// The message's number: its position in the source.
    pub number: u64,
    pub message: Message,
    pub meta: Meta,
    pub history: History,
    pub due: Option<Time>,
    /// When this process read it, if it is a fresh message.
    pub arrived: Option<Instant>,
    pub doomed: Option<Reason>,
    /// What else a copy has to carry on.
    pub carried: Carried,
}

/// Data that only copies have, and the next copy needs again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The topic that the message first came from; `None` for the pipeline's source.
    pub topic: Option<Arc<str>>,
    /// The latest job that requeued it.
    pub job: Option<u64>,
}

/// A record as the polling thread read it.
#[derive(Debug)]
pub struct Polled {
    pub waiting: WaitingMessage,
    /// The size with which it was counted in its lane's room.
    pub bytes: usize,
    /// The record that it replaces, if it is a copy.
    pub replaces: Option<Replaces>,
}

impl WaitingMessage {
    pub fn bytes(&self) -> usize {
        self.message.wire().len() + self.history.raw().len() + size_of::<Self>()
    }

    /// Returns when this process read it, in the time of the pipeline, which is `now`.
    pub fn arrived_at(&self, now: Time) -> Option<Time> {
        let waited = self.arrived?.elapsed().as_millis() as u64;
        Some(Time::from_millis(now.as_millis().saturating_sub(waited)))
    }

    fn of_copy(offset: u64, copy: CopyRecord, doomed: Option<Reason>) -> Self {
        Self {
            offset,
            number: copy.origin.number(),
            message: copy.message,
            meta: copy.meta,
            history: copy.history,
            due: copy.due,
            arrived: None,
            doomed,
            carried: Carried { topic: Some(copy.origin.topic), job: copy.job },
        }
    }
}

/// Copies a record out of librdkafka's memory.
pub fn take_in(reader: &RecordReader, record: &BorrowedMessage<'_>) -> Polled {
    let offset = record.offset().max(0) as u64;
    let mut replaces = None;
    let waiting = match reader.read(record) {
        Ok(Read::Fresh(message, meta)) => {
            // Omit the topic: it is the same for all of them, and that saves a contended reference count.
            let number = number_of(record.partition(), record.offset());
            WaitingMessage {
                offset,
                number,
                message,
                meta,
                history: History::default(),
                due: None,
                arrived: None,
                doomed: None,
                carried: Carried::default(),
            }
        }
        Ok(Read::Copy(copy)) => {
            // A first copy omits `x-from`: it replaces its source record. A replayed one replaces none.
            let first = || (copy.meta.replays == 0).then(|| Replaces::place(&copy.origin));
            replaces = Replaces::of(record).or_else(first);
            WaitingMessage::of_copy(offset, *copy, None)
        }
        Err(unreadable) => {
            tracing::error!(
                place = unreadable.place,
                problem = unreadable.problem,
                "a record that is no message"
            );
            WaitingMessage::of_copy(offset, *unreadable.rest, Some(Reason::Corrupt))
        }
    };
    let bytes = waiting.bytes();
    Polled { waiting, bytes, replaces }
}

pub fn number_of(partition: i32, offset: i64) -> u64 {
    (partition.max(0) as u64) << 48 | (offset.max(0) as u64 & ((1 << 48) - 1))
}

/// Returns the position in the source that a number names.
pub fn origin_of(number: u64, topic: &Arc<str>) -> Origin {
    let partition = (number >> 48) as i32;
    let offset = (number & ((1 << 48) - 1)).cast_signed();
    Origin { topic: Arc::clone(topic), partition, offset }
}
