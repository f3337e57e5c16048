//! Kafka Streams from 4.2 on (KIP-1034, `errors.dead.letter.queue.topic.name`). All values are text.

use super::Names;

pub(in crate::adopt) const NAMES: Names = Names {
    reads: "__streams.errors.topic/partition/offset, exception, message",
    marks: &["__streams.errors."],
    topic: &["__streams.errors.topic"],
    partition: &["__streams.errors.partition"],
    offset: &["__streams.errors.offset"],
    exception: &["__streams.errors.exception"],
    message: &["__streams.errors.message"],
    stacktrace: &["__streams.errors.stacktrace"],
    ..Names::NONE
};
