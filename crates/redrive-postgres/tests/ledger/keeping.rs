//! Setting the ledger up and keeping it small, against a real PostgreSQL.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use crate::support::{apply, with_empty_schema, with_ledger};
use redrive_postgres::{LedgerError, ledger};
use tokio_postgres::Client;

const HOUR: Duration = Duration::from_hours(1);

/// `count` ids, the nth applied n hours ago.
async fn apply_one_per_hour(client: &Client, count: i32) {
    let insert = "INSERT INTO applied SELECT 'order-' || n, now() - n * interval '1 hour' FROM generate_series(1, $1) n";
    client.execute(insert, &[&count]).await.expect("insert");
}

async fn kept(client: &Client) -> i64 {
    client.query_one("SELECT count(*) FROM applied", &[]).await.expect("count").get(0)
}

fn age(time: SystemTime) -> Duration {
    time.elapsed().unwrap_or_default()
}

#[tokio::test]
async fn migrating_again_keeps_what_is_there() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;
        apply(&mut client, "order-1").await.unwrap();
        let since = ledger::horizon(&client).await.unwrap();

        ledger::migrate(&client).await.unwrap();
        ledger::migrate(&client).await.unwrap();

        assert!(!apply(&mut client, "order-1").await.unwrap());
        assert_eq!(ledger::horizon(&client).await.unwrap(), since);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_processes_migrate_at_the_same_time() {
    // Plain CREATE TABLE IF NOT EXISTS fails here now and then with a duplicate key in pg_type.
    with_empty_schema(async |db| {
        let mut clients = Vec::new();
        for _ in 0..24 {
            clients.push(db.connect().await.client);
        }
        for round in 0..5 {
            let mut starts = Vec::new();
            for client in clients.drain(..) {
                starts.push(tokio::spawn(async move { (ledger::migrate(&client).await, client) }));
            }
            for start in starts {
                let (result, client) = start.await.unwrap();
                result.unwrap_or_else(|error| panic!("round {round}: {error}"));
                clients.push(client);
            }
            clients[0].batch_execute("DROP TABLE applied, applied_meta").await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn the_documented_rights_are_enough_once_the_ledger_exists() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;
        let (schema, role) = (&db.schema, format!("{}_role", db.schema));
        let handler = format!(
            "CREATE ROLE {role};
             GRANT USAGE ON SCHEMA {schema} TO {role};
             GRANT INSERT ON effects TO {role};
             GRANT INSERT, SELECT ON applied TO {role};
             GRANT SELECT ON applied_meta TO {role};
             SET ROLE {role}"
        );
        client.batch_execute(&handler).await.unwrap();
        let migrated = ledger::migrate(&client).await;
        let applied = apply(&mut client, "order-1").await;
        let horizon = ledger::horizon(&client).await;

        let keeper = format!(
            "RESET ROLE;
             REVOKE ALL ON applied, applied_meta FROM {role};
             GRANT SELECT, UPDATE, DELETE ON applied TO {role};
             GRANT SELECT, UPDATE ON applied_meta TO {role};
             SET ROLE {role}"
        );
        client.batch_execute(&keeper).await.unwrap();
        let pruned = ledger::prune(&client, Duration::ZERO, ledger::PRUNE_BATCH).await;

        // Roles belong to the whole server, so this one goes before anything can fail.
        client.batch_execute(&format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
        migrated.unwrap();
        assert!(applied.unwrap());
        horizon.unwrap();
        assert_eq!(pruned.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_published_schema_is_a_ledger_for_migrate() {
    with_empty_schema(async |db| {
        let mut client = db.connect().await.client;
        client.batch_execute(ledger::SCHEMA).await.unwrap();
        client.batch_execute("CREATE TABLE effects (id TEXT)").await.unwrap();

        ledger::migrate(&client).await.unwrap();

        assert!(apply(&mut client, "order-1").await.unwrap());
        assert!(!apply(&mut client, "order-1").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_foreign_table_of_that_name_is_left_alone() {
    with_empty_schema(async |db| {
        let client = db.connect().await.client;
        client
            .batch_execute("CREATE TABLE applied (name TEXT); INSERT INTO applied VALUES ('x')")
            .await
            .unwrap();

        let error = ledger::migrate(&client).await.unwrap_err();

        assert!(matches!(error, LedgerError::NotALedger { .. }), "{error:?}");
        assert_eq!(kept(&client).await, 1);
        let meta = client.query("SELECT FROM applied_meta", &[]).await;
        assert!(meta.is_err(), "nothing was created beside it");
        client.simple_query("SELECT 1").await.expect("the connection is usable");
    })
    .await;
}

#[tokio::test]
async fn a_ledger_of_a_newer_version_is_refused() {
    with_ledger(async |db| {
        let client = db.connect().await.client;
        client.execute("UPDATE applied_meta SET version = 99", &[]).await.unwrap();

        let error = ledger::migrate(&client).await.unwrap_err();

        assert!(matches!(error, LedgerError::TooNew { found: 99, known: ledger::VERSION }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn prune_forgets_the_older_and_keeps_the_younger() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;
        apply_one_per_hour(&client, 10).await;

        let pruned = ledger::prune(&client, HOUR * 4 + HOUR / 2, ledger::PRUNE_BATCH).await.unwrap();

        assert_eq!(pruned, 6);
        assert!(!apply(&mut client, "order-4").await.unwrap(), "kept");
        assert!(apply(&mut client, "order-5").await.unwrap(), "beyond the horizon it is applied again");
    })
    .await;
}

#[tokio::test]
async fn prune_works_in_bounded_batches_until_all_is_done() {
    with_ledger(async |db| {
        let client = db.connect().await.client;
        // A statement that deletes more than its batch is refused by the server.
        client
            .batch_execute(
                "CREATE FUNCTION at_most_three() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     IF (SELECT count(*) FROM gone) > 3 THEN RAISE 'too many'; END IF; RETURN NULL; END $$;
                 CREATE TRIGGER bound AFTER DELETE ON applied REFERENCING OLD TABLE AS gone
                     FOR EACH STATEMENT EXECUTE FUNCTION at_most_three()",
            )
            .await
            .unwrap();
        // Also when a batch ends in the middle of equal times.
        client.batch_execute("INSERT INTO applied SELECT 'same-' || n, now() - interval '9 hours' FROM generate_series(1, 7) n").await.unwrap();
        apply_one_per_hour(&client, 10).await;

        let pruned = ledger::prune(&client, HOUR / 2, NonZeroU32::new(3).unwrap()).await.unwrap();

        assert_eq!(pruned, 17);
        assert_eq!(kept(&client).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_prunes_share_the_work() {
    with_ledger(async |db| {
        let client = db.connect().await.client;
        apply_one_per_hour(&client, 2_000).await;
        let mut prunes = Vec::new();
        for _ in 0..8 {
            let client = db.connect().await.client;
            prunes.push(tokio::spawn(async move {
                ledger::prune(&client, HOUR / 2, NonZeroU32::new(50).unwrap()).await
            }));
        }
        let mut pruned = 0;
        for prune in prunes {
            pruned += prune.await.unwrap().unwrap();
        }
        pruned += ledger::prune(&client, HOUR / 2, ledger::PRUNE_BATCH).await.unwrap();

        assert_eq!(pruned, 2_000, "each id is counted once");
        assert_eq!(kept(&client).await, 0);
    })
    .await;
}

#[tokio::test]
async fn prune_does_not_wait_for_a_row_that_somebody_holds() {
    with_ledger(async |db| {
        let client = db.connect().await.client;
        apply_one_per_hour(&client, 3).await;
        let mut holder = db.connect().await.client;
        let tx = holder.transaction().await.unwrap();
        tx.execute("SELECT FROM applied WHERE id = 'order-2' FOR UPDATE", &[]).await.unwrap();

        assert_eq!(ledger::prune(&client, HOUR / 2, ledger::PRUNE_BATCH).await.unwrap(), 2);
        tx.commit().await.unwrap();
        assert_eq!(ledger::prune(&client, HOUR / 2, ledger::PRUNE_BATCH).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_index_finds_what_to_prune() {
    with_ledger(async |db| {
        let client = db.connect().await.client;
        apply_one_per_hour(&client, 20_000).await;
        client.batch_execute("ANALYZE applied").await.unwrap();
        let explain = "EXPLAIN SELECT id FROM applied WHERE applied_at < now() - interval '2 years' ORDER BY applied_at LIMIT 100";
        let rows = client.query(explain, &[]).await.unwrap();
        let plan = rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n");
        assert!(plan.contains("applied_by_age"), "{plan}");
    })
    .await;
}

#[tokio::test]
async fn an_absurd_age_prunes_nothing() {
    with_ledger(async |db| {
        let client = db.connect().await.client;
        apply_one_per_hour(&client, 3).await;
        assert_eq!(ledger::prune(&client, Duration::MAX, ledger::PRUNE_BATCH).await.unwrap(), 0);
        assert_eq!(kept(&client).await, 3);
    })
    .await;
}

#[tokio::test]
async fn the_horizon_starts_with_the_ledger_and_only_moves_forward() {
    with_ledger(async |db| {
        let client = db.connect().await.client;
        assert!(age(ledger::horizon(&client).await.unwrap()) < HOUR);

        // As if the ledger were a day old.
        client
            .batch_execute("UPDATE applied_meta SET complete_since = now() - interval '1 day'")
            .await
            .unwrap();
        ledger::prune(&client, HOUR * 5, ledger::PRUNE_BATCH).await.unwrap();
        let pruned_to = ledger::horizon(&client).await.unwrap();
        assert!((HOUR * 4..HOUR * 6).contains(&age(pruned_to)));

        ledger::prune(&client, HOUR * 9, ledger::PRUNE_BATCH).await.unwrap();
        assert_eq!(
            ledger::horizon(&client).await.unwrap(),
            pruned_to,
            "a gentler prune does not bring ids back"
        );
    })
    .await;
}

#[tokio::test]
async fn without_a_ledger_prune_and_horizon_say_to_migrate() {
    with_empty_schema(async |db| {
        let client = db.connect().await.client;
        let prune = ledger::prune(&client, HOUR, ledger::PRUNE_BATCH).await.unwrap_err();
        let horizon = ledger::horizon(&client).await.unwrap_err();
        assert!(matches!(prune, LedgerError::NotMigrated), "{prune:?}");
        assert!(matches!(horizon, LedgerError::NotMigrated), "{horizon:?}");
    })
    .await;
}
