//! Delivery reports of a producer without a thread of its own.

use std::time::Duration;

use rdkafka::producer::{BaseProducer, ProducerContext};

/// How soon a report is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Waits a moment, then collects the reports that have come.
///
/// Not `producer.poll(a moment)`: that waits its time out in full and, because librdkafka counts whole milliseconds, spins
/// through the last of them. A loop of polls of 1 ms uses a whole core for as long as the broker takes to answer.
pub fn collect_reports<C: ProducerContext>(producer: &BaseProducer<C>) {
    std::thread::sleep(LOOK_EVERY);
    producer.poll(Duration::ZERO);
}
