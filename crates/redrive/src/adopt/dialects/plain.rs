//! No framework: the record is the message. `x-original-topic` and its like are read if they are there.

use super::Names;

pub(in crate::adopt) const NAMES: Names = Names {
    reads: "x-original-topic/partition/offset, if there",
    marks: &["x-original-topic"],
    topic: &["x-original-topic"],
    partition: &["x-original-partition"],
    offset: &["x-original-offset"],
    created: &["x-original-timestamp"],
    ..Names::NONE
};
