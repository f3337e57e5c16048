//! Delivery reports of a producer that has no thread of its own.

use std::time::Duration;

use rdkafka::producer::{BaseProducer, ProducerContext};

/// How soon a report is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Waits briefly, then collects the delivery reports that have arrived.
///
/// `producer.poll(1 ms)` would wait its full time and, because librdkafka counts whole milliseconds, spin through the
/// last one. A loop of such polls uses a whole core for as long as the broker takes to answer.
pub fn collect_reports<C: ProducerContext>(producer: &BaseProducer<C>) {
    std::thread::sleep(LOOK_EVERY);
    producer.poll(Duration::ZERO);
}
