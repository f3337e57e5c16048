//! Which topics are a pipeline's own. Nothing in them is a dead letter of another framework.

use redrive_core::duration;

/// Suffixes that follow the pipeline's name in the names of its Kafka topics.
const ENDINGS: [&str; 6] = [".replay", ".DLQ", ".DLQ.state", ".progress", ".control", ".subscriptions"];

/// Whether `topic` belongs to `pipeline` on Kafka: it is the `source` that the pipeline reads, or one that it writes,
/// including tiers that are no longer configured.
pub fn is_own_topic(pipeline: &str, source: &str, topic: &str) -> bool {
    let is_written = |ending: &str| {
        let is_tier = |delay| duration::parse(delay).is_ok();
        ENDINGS.contains(&ending) || ending.strip_prefix(".retry.").is_some_and(is_tier)
    };
    topic == source || topic.strip_prefix(pipeline).is_some_and(is_written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_tiers_and_what_a_pipeline_writes_are_its_own_and_nothing_else() {
        let own = |topic| is_own_topic("billing", "orders", topic);
        for topic in [
            "orders",
            "billing.DLQ",
            "billing.DLQ.state",
            "billing.progress",
            "billing.replay",
            "billing.retry.30s",
        ] {
            assert!(own(topic), "{topic}");
        }
        for topic in [
            "billing",
            "orders.DLQ",
            "billing-dlt",
            "billing.DLQ.old",
            "billing.retry.soon",
            "billing2.DLQ",
            "",
        ] {
            assert!(!own(topic), "{topic}");
        }
    }
}
