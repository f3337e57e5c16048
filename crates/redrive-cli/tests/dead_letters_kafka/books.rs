//! Story 7 on Kafka: the books of PostgreSQL account for every record of the topic.

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
