//! Share groups of Kafka 4.4 (KIP-1191). Unless the group says otherwise, the record has neither key nor value: it points at
//! the message in its topic. All values are text.

use super::Names;
use crate::adopt::record::ForeignRecord;
use crate::adopt::understood::Understood;

pub(in crate::adopt) const NAMES: Names = Names {
    reads: "__dlq.errors.topic/partition/offset, delivery.count, message",
    marks: &["__dlq.errors."],
    topic: &["__dlq.errors.topic"],
    partition: &["__dlq.errors.partition"],
    offset: &["__dlq.errors.offset"],
    message: &["__dlq.errors.message"],
    attempts: &["__dlq.errors.delivery.count"],
    ..Names::NONE
};

/// A copy of a tombstone has a key; without one it cannot be told from a pointer, and reading what it points at gives the
/// same.
pub(in crate::adopt) fn complete(understood: Understood, record: &ForeignRecord<'_>) -> Understood {
    Understood { is_pointer: record.key.is_none() && record.value.is_none(), ..understood }
}
