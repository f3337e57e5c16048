//! Karafka: `source_*`, and before 2.4 `original_*`. Only Karafka Pro writes them; it writes no error. All values are text.

use super::Names;

pub(in crate::adopt) const NAMES: Names = Names {
    reads: "source_topic/partition/offset, source_attempts",
    marks: &["source_topic", "source_consumer_group", "original_topic", "original_consumer_group"],
    topic: &["source_topic", "original_topic"],
    partition: &["source_partition", "original_partition"],
    offset: &["source_offset", "original_offset"],
    attempts: &["source_attempts", "original_attempts"],
    ..Names::NONE
};
