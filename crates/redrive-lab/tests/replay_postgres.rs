//! E6: fill with poison, fix, replay all, against a real PostgreSQL. The ledger has no id twice, nothing is lost, and
//! orders that were applied before their call failed are among the letters.

use redrive_lab::experiments::{Finished, Order, OrderedEngine, run};
use redrive_lab::testbed::Silent;

fn server_url() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/postgres/url");
    let url = std::env::var("REDRIVE_TEST_POSTGRES").or_else(|_| std::fs::read_to_string(file));
    url.expect("no PostgreSQL: run scripts/postgres.sh start, or set REDRIVE_TEST_POSTGRES").trim().to_owned()
}

fn every_effect_is_there_once(engine: OrderedEngine, ran_on: &str) {
    let out = tempfile::tempdir().unwrap();
    let order = Order {
        name: "replay".to_owned(),
        file: None,
        seed: 7,
        quick: true,
        broken: None,
        engine: Some(engine),
        postgres: Some(server_url()),
        out: Some(out.path().to_owned()),
        victim: Vec::new(),
        command: "redrive lab run replay --seed 7 --quick --postgres …".to_owned(),
    };
    let Finished { summary, dir, .. } = run(&order, &Silent).unwrap();
    assert_eq!(summary.ran_on, ran_on);
    assert!(summary.audit_balances(), "success + remaining == produced: {:#?}", summary.variants);
    let wrong: Vec<_> = summary.verdicts.iter().filter(|verdict| !verdict.met).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{:#?}", summary.variants);
    assert!(
        summary.verdicts.iter().any(|verdict| verdict.figure == "ambiguous"),
        "half-applied letters count"
    );

    // The page shows the SQL with its answers.
    let page = std::fs::read_to_string(dir.unwrap().join("index.md")).unwrap();
    let having = "GROUP BY order_id HAVING count(*) > 1) AS twice` → 0";
    assert!(page.contains(having), "{page}");
    assert!(page.contains("`SELECT count(*) FROM applied` → 1000"), "{page}");
    assert!(page.contains("`SELECT count(*) FROM effects` → 1000"), "{page}");
}

#[test]
fn after_a_fix_and_a_replay_of_all_the_ledger_has_every_id_once() {
    every_effect_is_there_once(OrderedEngine::Embedded, "embedded engine, real clock");
}

#[cfg(feature = "kafka")]
#[test]
fn after_a_fix_and_a_replay_of_all_the_ledger_has_every_id_once_on_kafka() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kafka/address");
    let brokers = std::env::var("REDRIVE_TEST_KAFKA").or_else(|_| std::fs::read_to_string(file));
    let brokers = brokers.expect("no Kafka: run `make kafka-up`, or set REDRIVE_TEST_KAFKA=host:port");
    let kafka = OrderedEngine::Kafka(brokers.trim().to_owned());
    every_effect_is_there_once(kafka, "Kafka engine, real clock");
}
