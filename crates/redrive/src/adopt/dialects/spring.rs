//! Spring for Apache Kafka. `DeadLetterPublishingRecoverer` writes `kafka_dlt-*`, retry topics write the same names without
//! `dlt-` and `retry_topic-*`, and the Kafka binder of Spring Cloud Stream writes `x-*`. Numbers are big-endian bytes.

use super::Names;

pub(in crate::adopt) const NAMES: Names = Names {
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
