//! Kafka Connect sinks, with `errors.deadletterqueue.context.headers.enable=true`. All values are text.

use super::Names;

pub(in crate::adopt) const NAMES: Names = Names {
    reads: "__connect.errors.topic/partition/offset, exception.class.name, exception.message",
    marks: &["__connect.errors."],
    topic: &["__connect.errors.topic"],
    partition: &["__connect.errors.partition"],
    offset: &["__connect.errors.offset"],
    exception: &["__connect.errors.exception.class.name"],
    message: &["__connect.errors.exception.message"],
    stacktrace: &["__connect.errors.exception.stacktrace"],
    ..Names::NONE
};
