//! A short outage under load on both engines: no letters, no unnecessary calls, no rush afterwards.

use std::sync::Arc;
use std::time::Duration;

use redrive::{BreakerSettings, Embedded, Redrive};
use redrive_lab::outage::{OutageDownstream, OutagePlan, ingest_paced, play};

/// About three probe rounds within a few seconds.
fn short() -> OutagePlan {
    let mut breaker = BreakerSettings::default();
    breaker.fast.window = Duration::from_secs(2);
    breaker.cooldown = Duration::from_millis(500);
    breaker.cooldown_max = Duration::from_secs(1);
    let mut plan = OutagePlan::lasting(Duration::from_secs(4), 300);
    plan.before = Duration::from_secs(1);
    plan.breaker = breaker;
    plan
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_on_the_embedded_engine_costs_few_calls_and_no_message() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, downstream) = (short(), Arc::new(OutageDownstream::default()));
    let engine = Embedded::open(dir.path()).unwrap();
    let pipeline = downstream.pipeline("orders", &plan);
    let redrive = Redrive::builder().engine(engine).pipeline(pipeline).build().unwrap();
    let feed = |stop, handle| ingest_paced(plan.rate, stop, handle);
    let told = play(redrive, "orders", &downstream, &plan, feed).await.unwrap();
    told.check().unwrap();
    println!("{told}");
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_on_kafka_costs_few_calls_and_no_message() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kafka/address");
    let brokers = std::env::var("REDRIVE_TEST_KAFKA").or_else(|_| std::fs::read_to_string(file));
    let brokers = brokers.expect("no Kafka: run `make kafka-up`, or set REDRIVE_TEST_KAFKA=host:port");
    let dir = tempfile::tempdir().unwrap();
    let name = format!("outage-{}", std::process::id());
    let told = redrive_lab::kafka::outage::run(brokers.trim(), &name, dir.path(), &short()).await.unwrap();
    told.check().unwrap();
    println!("{told}");
}
