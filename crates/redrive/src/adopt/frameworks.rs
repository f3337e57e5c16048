//! The header names that each framework writes, and its peculiarities.

use super::record::ForeignRecord;
use super::understood::Understood;

/// The headers of a framework. If several names are listed for one field, the first that is present counts.
pub(super) struct Names {
    /// For display.
    pub reads: &'static str,
    /// Prefixes of names that only this framework writes.
    pub marks: &'static [&'static str],
    pub topic: &'static [&'static str],
    pub partition: &'static [&'static str],
    pub offset: &'static [&'static str],
    pub id: &'static [&'static str],
    pub exception: &'static [&'static str],
    /// The nested exception, if the outer one only says that something failed.
    pub inner_exception: &'static [&'static str],
    pub message: &'static [&'static str],
    pub stacktrace: &'static [&'static str],
    pub attempts: &'static [&'static str],
    pub created: &'static [&'static str],
}

impl Names {
    const NONE: Self = Self {
        reads: "",
        marks: &[],
        topic: &[],
        partition: &[],
        offset: &[],
        id: &[],
        exception: &[],
        inner_exception: &[],
        message: &[],
        stacktrace: &[],
        attempts: &[],
        created: &[],
    };
}

/// Spring for Apache Kafka. `DeadLetterPublishingRecoverer` writes `kafka_dlt-*`, retry topics write the same names without
/// `dlt-` and `retry_topic-*`, and the Kafka binder of Spring Cloud Stream writes `x-*`. Numbers are big-endian bytes.
pub(super) const SPRING: Names = Names {
    reads: "kafka_dlt-original-topic/partition/offset, exception-fqcn, message",
    marks: &["kafka_dlt-", "kafka_original-", "kafka_exception-", "retry_topic-", "x-exception-fqcn"],
    topic: &["kafka_dlt-original-topic", "kafka_original-topic", "x-original-topic"],
    partition: &["kafka_dlt-original-partition", "kafka_original-partition", "x-original-partition"],
    offset: &["kafka_dlt-original-offset", "kafka_original-offset", "x-original-offset"],
    exception: &[
        "kafka_dlt-exception-fqcn",
        "kafka_exception-fqcn",
        "kafka_dlt-key-exception-fqcn",
        "kafka_key-exception-fqcn",
        "x-exception-fqcn",
    ],
    inner_exception: &["kafka_dlt-exception-cause-fqcn", "kafka_exception-cause-fqcn"],
    message: &[
        "kafka_dlt-exception-message",
        "kafka_exception-message",
        "kafka_dlt-key-exception-message",
        "kafka_key-exception-message",
        "x-exception-message",
    ],
    stacktrace: &[
        "kafka_dlt-exception-stacktrace",
        "kafka_exception-stacktrace",
        "kafka_dlt-key-exception-stacktrace",
        "kafka_key-exception-stacktrace",
        "x-exception-stacktrace",
    ],
    attempts: &["retry_topic-attempts", "kafka_deliveryAttempt"],
    created: &[
        "retry_topic-original-timestamp",
        "kafka_dlt-original-timestamp",
        "kafka_original-timestamp",
        "x-original-timestamp",
    ],
    ..Names::NONE
};

/// Kafka Connect sinks, with `errors.deadletterqueue.context.headers.enable=true`. All values are text.
pub(super) const CONNECT: Names = Names {
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

/// Kafka Streams from 4.2 on (KIP-1034, `errors.dead.letter.queue.topic.name`). All values are text.
pub(super) const STREAMS: Names = Names {
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

/// Share groups of Kafka 4.4 (KIP-1191). By default the record has neither key nor value and points at the message in
/// its topic. All values are text.
pub(super) const KIP1191: Names = Names {
    reads: "__dlq.errors.topic/partition/offset, delivery.count, message",
    marks: &["__dlq.errors."],
    topic: &["__dlq.errors.topic"],
    partition: &["__dlq.errors.partition"],
    offset: &["__dlq.errors.offset"],
    message: &["__dlq.errors.message"],
    attempts: &["__dlq.errors.delivery.count"],
    ..Names::NONE
};

/// A copy of a tombstone has a key. Without one it looks like a pointer, and following the pointer gives the same
/// message.
pub(super) fn complete_kip1191(understood: Understood, record: &ForeignRecord<'_>) -> Understood {
    Understood { is_pointer: record.key.is_none() && record.value.is_none(), ..understood }
}

/// Watermill's poison queue. The metadata of a message becomes headers, which give the topic but no partition or
/// offset.
pub(super) const WATERMILL: Names = Names {
    reads: "reason_poisoned, topic_poisoned, _watermill_message_uuid",
    marks: &["reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned"],
    id: &["_watermill_message_uuid"],
    message: &["reason_poisoned"],
    ..Names::NONE
};

/// Karafka: `source_*`, before 2.4 `original_*`. Only Karafka Pro writes them, and it records no error. All values
/// are text.
pub(super) const KARAFKA: Names = Names {
    reads: "source_topic/partition/offset, source_attempts",
    marks: &["source_topic", "source_consumer_group", "original_topic", "original_consumer_group"],
    topic: &["source_topic", "original_topic"],
    partition: &["source_partition", "original_partition"],
    offset: &["source_offset", "original_offset"],
    attempts: &["source_attempts", "original_attempts"],
    ..Names::NONE
};

/// No framework: the record is the message. `x-original-topic` and similar headers are read if present.
pub(super) const PLAIN: Names = Names {
    reads: "x-original-topic/partition/offset, if there",
    marks: &["x-original-topic"],
    topic: &["x-original-topic"],
    partition: &["x-original-partition"],
    offset: &["x-original-offset"],
    created: &["x-original-timestamp"],
    ..Names::NONE
};
