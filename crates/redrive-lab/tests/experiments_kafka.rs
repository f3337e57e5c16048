//! The quick forms of scenarios on topics of a real broker.
#![cfg(feature = "kafka")]

mod support {
    pub(crate) mod quick;
}

use redrive_lab::experiments::{Order, OrderedEngine, run};
use redrive_lab::testbed::Silent;
use support::quick::{Insist, must_hold_on, order};

/// The same load and figures on topics of a real broker. The scenarios mostly wait, so they run concurrently.
#[test]
fn scenarios_by_the_real_clock_run_on_kafka_and_others_say_why_they_do_not() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kafka/address");
    let brokers = std::env::var("REDRIVE_TEST_KAFKA").or_else(|_| std::fs::read_to_string(file));
    let brokers = brokers.expect("no Kafka: run `make kafka-up`, or set REDRIVE_TEST_KAFKA=host:port");
    let kafka = OrderedEngine::Kafka(brokers.trim().to_owned());
    // A few at a time: each variant has its own group, and a small machine has to keep up with all of them. Scenarios
    // with killed and restarted processes load the broker, so they run alone.
    let together: [&[&str]; 5] = [
        &["blocking-vs-non-blocking"],
        &["failure-sweep", "ordering", "misclassification", "mixed", "replay"],
        &["kills"],
        &["lateness", "soak-50k", "time-to-dead-letter"],
        &["backoff-sweep", "poison-growth", "retry-storm"],
    ];
    for names in together {
        std::thread::scope(|scope| {
            for name in names {
                scope.spawn(|| {
                    must_hold_on(
                        name,
                        kafka.clone(),
                        "Kafka engine, real clock",
                        Insist::OnWhatSpeedCannotChange,
                    );
                });
            }
        });
    }
    let on_kafka = |name: &str| Order { engine: Some(kafka.clone()), ..order(name, None, None) };
    let refused = |name: &str| run(&on_kafka(name), &Silent).unwrap_err().to_string();
    assert!(refused("metastability").contains("its clock is virtual"), "{}", refused("metastability"));
    assert!(refused("bloom").contains("it is a model"), "{}", refused("bloom"));
}
