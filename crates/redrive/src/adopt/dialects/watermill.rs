//! Watermill's poison queue: the metadata of a message are its headers. It names the topic, and no place in it.

use super::Names;
use crate::adopt::record::ForeignRecord;
use crate::adopt::understood::Understood;

pub(in crate::adopt) const NAMES: Names = Names {
    reads: "reason_poisoned, topic_poisoned, _watermill_message_uuid",
    marks: &["reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned"],
    id: &["_watermill_message_uuid"],
    message: &["reason_poisoned"],
    ..Names::NONE
};

/// A message without its UUID is known by where it lies in the poison queue.
pub(in crate::adopt) fn complete(understood: Understood, record: &ForeignRecord<'_>) -> Understood {
    Understood { message_id: understood.message_id.or_else(|| Some(record.place())), ..understood }
}
