//! `redrive audit --applied postgres://…` against a real PostgreSQL, in a separate schema.

mod recorded;

use recorded::{RecordedApi, not_found, pipeline};
use serde_json::json;
use tokio_postgres::{Client, NoTls};

/// The server for the tests. Without it they fail: a skipped test would look like a passed one.
fn server_url() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/postgres/url");
    let url = std::env::var("REDRIVE_TEST_POSTGRES").or_else(|_| std::fs::read_to_string(file));
    url.expect(
        "this test needs a PostgreSQL server: run scripts/postgres.sh start, \
         or set REDRIVE_TEST_POSTGRES=postgres://user:password@host:port/database",
    )
    .trim()
    .to_owned()
}

/// A processor that has no letters and knows no message.
fn processor() -> RecordedApi {
    RecordedApi::new(|asked| match asked.line.as_str() {
        "GET /v1/pipelines/orders" => (200, pipeline(false)),
        line if line.contains("/letters?") => (200, json!({"letters": [], "next": null})),
        line => not_found(line),
    })
}

fn with_schema(test: impl AsyncFnOnce(&Client, &str)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server_url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = format!("redrive_audit_{}", std::process::id());
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; SET search_path = {schema}"
            ))
            .await
            .unwrap();
        let joint = if server_url().contains('?') { '&' } else { '?' };
        let url = format!("{}{joint}options=-c%20search_path%3D{schema}", server_url());
        test(&client, &url).await;
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
    });
}

#[test]
fn the_table_applied_is_a_witness() {
    with_schema(async |client, url| {
        let processor = processor();
        let audit = |more: &[&str]| {
            let args = ["audit", "orders", "--applied", url, "--ids", "o-0..o-24999"];
            processor.redrive(&[&args, more].concat())
        };
        audit(&[]).exits(2).complains("has no table `applied` with a column order_id or id");

        client
            .batch_execute(
                "CREATE TABLE applied (order_id TEXT PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now());
                 INSERT INTO applied (order_id) SELECT 'o-' || i FROM generate_series(0, 24999) AS i",
            )
            .await
            .unwrap();
        let good = audit(&[]).exits(0);
        assert!(
            good.stdout.contains("  succeeded               25,000   id found in applied\n"),
            "{}",
            good.stdout
        );
        assert!(good.stdout.ends_with("proof   by id against postgres\n"), "{}", good.stdout);

        client.batch_execute("DELETE FROM applied WHERE order_id = 'o-12345'").await.unwrap();
        let bad = audit(&[]).exits(1);
        assert!(bad.stdout.contains("  missing                      1   ✗\n    o-12345\n"), "{}", bad.stdout);

        client
            .batch_execute(
                "INSERT INTO applied (order_id) VALUES ('o-12345');
                 CREATE TABLE effects (order_id TEXT NOT NULL);
                 INSERT INTO effects VALUES ('o-1'), ('o-2'), ('o-1')",
            )
            .await
            .unwrap();
        let twice = audit(&["--effects", "effects", "--json"]).exits(1).json();
        assert_eq!((&twice["missing"], &twice["duplicate_effects"]), (&json!(0), &json!(1)));

        // The ledger of redrive-postgres names its column id.
        client.batch_execute("ALTER TABLE applied RENAME COLUMN order_id TO id").await.unwrap();
        audit(&[]).exits(0);
    });
}

#[test]
fn a_database_that_says_no_is_quoted_without_its_password() {
    let base = server_url();
    let (_, rest) = base.split_once('@').unwrap();
    let url = format!("postgres://nobody_of_that_name:s3cret@{rest}");
    let ran = processor().redrive(&["audit", "orders", "--applied", &url, "--ids", "o-0..o-9"]).exits(2);
    assert!(ran.stderr.contains("the database answered") && !ran.stderr.contains("s3cret"), "{ran:?}");
}
