//! Story 7 on Kafka: PostgreSQL accounts for every record of the topic.

use serde_json::{Value, json};

use super::world::kafka;
use super::world::members::letters;
use super::world::postgres::Schema;
use super::world::process::{Processor, stderr, stdout};
use super::world::stub::Stub;
use super::world::wait_for;
use super::{lines, member};

#[test]
fn the_books_of_postgres_account_for_every_record_and_a_missing_row_is_named() {
    let schema = Schema::new("story7_kafka");
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &["--postgres", &schema.url]);
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    let order = |n: i64| {
        let amount = if n % 10 == 7 { -1 } else { 1 };
        (format!("c-{n}"), json!({ "order_id": format!("o-{n}"), "amount": amount }).to_string())
    };
    kafka::produce(&orders, (0..40).map(order));
    let processor = member(dir.path(), "redrive-0", &orders, &lines(&orders, "", ""), &stub.url);
    let audit = |processor: &Processor, code: i32| -> Value {
        let args = ["audit", &orders, "--applied", &schema.url, "--effects", "effects", "--json", "-q"];
        let ran = processor.cli(&args);
        assert_eq!(ran.status.code(), Some(code), "{}{}", stdout(&ran), stderr(&ran));
        serde_json::from_str(&stdout(&ran)).unwrap()
    };
    wait_for("all of them to come to their end", || {
        letters(&processor, &orders)["open"] == 4 && schema.column("SELECT id FROM applied").len() == 36
    });
    let found = audit(&processor, 0);
    let counts = ["produced", "succeeded", "missing", "duplicate_effects"].map(|name| &found[name]);
    assert_eq!(counts, [40, 36, 0, 0].map(Value::from).each_ref(), "{found}");
    assert_eq!(
        (&found["dead"]["open"], &found["proof"]),
        (&json!(4), &json!("by id against postgres")),
        "{found}"
    );

    schema.execute("DELETE FROM applied WHERE id = 'o-21'");
    let found = audit(&processor, 1);
    assert_eq!((&found["missing"], &found["missing_ids"]), (&json!(1), &json!(["o-21"])), "{found}");
}

/// Without a witness the topics themselves account for every record: settled ones, dead ones, and pending ones that a
/// stopped processor never reached.
#[test]
fn without_a_witness_positions_account_for_every_record_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    let order = |n: i64| {
        let amount = if n % 10 == 7 { -1 } else { 1 };
        (format!("c-{n}"), json!({ "order_id": format!("o-{n}"), "amount": amount }).to_string())
    };
    kafka::produce(&orders, (0..30).map(order));
    let processor = member(dir.path(), "redrive-0", &orders, &lines(&orders, "", ""), &stub.url);
    let audit = |processor: &Processor| -> Value {
        let ran = processor.cli(&["audit", &orders, "--json", "-q"]);
        assert_eq!(ran.status.code(), Some(0), "{}{}", stdout(&ran), stderr(&ran));
        serde_json::from_str(&stdout(&ran)).unwrap()
    };
    let counts = |found: &Value| {
        let dead = found["dead"]["total"].clone();
        [found["produced"].clone(), found["succeeded"].clone(), dead, found["pending"].clone()]
    };
    wait_for("all of them to be settled", || counts(&audit(&processor)) == [30, 27, 3, 0].map(Value::from));
    let found = audit(&processor);
    assert_eq!(
        (&found["proof"], &found["duplicate_effects"]),
        (&json!("by position"), &Value::Null),
        "{found}"
    );
    let text = stdout(&processor.cli(&["audit", &orders, "-q"]));
    assert!(text.contains("proof   by position   (effects not verified"), "{text}");

    let paused = processor.cli(&["pause", &orders]);
    assert_eq!(paused.status.code(), Some(0), "{}", stderr(&paused));
    kafka::produce(&orders, (30..34).map(order));
    assert_eq!(
        counts(&audit(&processor)),
        [34, 27, 3, 4].map(Value::from),
        "what nobody delivered is pending"
    );
}
