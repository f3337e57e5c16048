//! `ledger::once` against a real PostgreSQL: an effect happens at most once per id.

use crate::support::{apply, backend_pid, with_empty_schema, with_ledger};
use redrive_postgres::{IdFault, LedgerError, ledger};
use tokio_postgres::IsolationLevel;

#[tokio::test]
async fn the_first_time_is_true_and_every_other_time_false() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;

        assert!(apply(&mut client, "order-1").await.unwrap());
        assert!(!apply(&mut client, "order-1").await.unwrap());
        assert!(!apply(&mut client, "order-1").await.unwrap());
        assert!(apply(&mut client, "order-2").await.unwrap(), "another id is not affected");

        assert_eq!(db.effects("order-1").await, 1);
        assert_eq!(db.effects("order-2").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_second_call_in_the_same_transaction_is_false() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;
        let mut tx = client.transaction().await.unwrap();

        assert!(ledger::once(&mut tx, "order-1").await.unwrap());
        assert!(!ledger::once(&mut tx, "order-1").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_rollback_leaves_no_trace_and_the_retry_applies() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;

        let mut tx = client.transaction().await.unwrap();
        assert!(ledger::once(&mut tx, "order-1").await.unwrap());
        tx.execute("INSERT INTO effects VALUES ('order-1')", &[]).await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(db.effects("order-1").await, 0);

        assert!(apply(&mut client, "order-1").await.unwrap());
        assert_eq!(db.effects("order-1").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_is_only_dropped_leaves_no_trace() {
    // A handler that returns early with `?` neither commits nor rolls back.
    with_ledger(async |db| {
        let mut client = db.connect().await.client;
        let mut tx = client.transaction().await.unwrap();
        assert!(ledger::once(&mut tx, "order-1").await.unwrap());
        drop(tx);

        assert!(apply(&mut client, "order-1").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_rolled_back_savepoint_forgets_the_id_together_with_its_effect() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;
        let mut tx = client.transaction().await.unwrap();
        let mut nested = tx.transaction().await.unwrap();
        assert!(ledger::once(&mut nested, "order-1").await.unwrap());
        nested.rollback().await.unwrap();

        assert!(ledger::once(&mut tx, "order-1").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_concurrent_duplicate_waits_and_is_false_after_the_commit() {
    with_ledger(async |db| {
        let mut first = db.connect().await.client;
        let mut tx = first.transaction().await.unwrap();
        assert!(ledger::once(&mut tx, "order-1").await.unwrap());
        tx.execute("INSERT INTO effects VALUES ('order-1')", &[]).await.unwrap();

        let mut second = db.connect().await.client;
        let backend = backend_pid(&second).await;
        let duplicate = tokio::spawn(async move { apply(&mut second, "order-1").await });
        db.wait_until_blocked(backend).await;
        assert!(!duplicate.is_finished());
        tx.commit().await.unwrap();

        assert!(!duplicate.await.unwrap().unwrap());
        assert_eq!(db.effects("order-1").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_concurrent_duplicate_waits_and_is_true_after_the_rollback() {
    with_ledger(async |db| {
        let mut first = db.connect().await.client;
        let mut tx = first.transaction().await.unwrap();
        assert!(ledger::once(&mut tx, "order-1").await.unwrap());

        let mut second = db.connect().await.client;
        let backend = backend_pid(&second).await;
        let duplicate = tokio::spawn(async move { apply(&mut second, "order-1").await });
        db.wait_until_blocked(backend).await;
        tx.rollback().await.unwrap();

        assert!(duplicate.await.unwrap().unwrap());
        assert_eq!(db.effects("order-1").await, 1);
    })
    .await;
}

#[tokio::test]
async fn different_ids_do_not_wait_for_each_other() {
    with_ledger(async |db| {
        let mut first = db.connect().await.client;
        let mut tx = first.transaction().await.unwrap();
        assert!(ledger::once(&mut tx, "order-1").await.unwrap());

        assert!(apply(&mut db.connect().await.client, "order-2").await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_ids_delivered_many_times_at_once_apply_once_each() {
    const IDS: i64 = 1_000;
    const WORKERS: usize = 16;
    with_ledger(async |db| {
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let mut client = db.connect().await.client;
            workers.push(tokio::spawn(async move {
                let mut applied = 0;
                for n in 0..IDS {
                    // Neighbours start side by side and half the workers walk backwards, so that the same id is
                    // asked for at the same moment again and again.
                    let n = if worker % 2 == 0 { n } else { IDS - 1 - n };
                    applied += i64::from(apply(&mut client, &format!("order-{n}")).await.unwrap());
                }
                applied
            }));
        }
        let mut applied = 0;
        for worker in workers {
            applied += worker.await.unwrap();
        }
        assert_eq!(applied, IDS, "each id told exactly one worker that it is the first");

        let client = db.connect().await.client;
        let row = client.query_one("SELECT count(*), count(DISTINCT id) FROM effects", &[]).await.unwrap();
        assert_eq!((row.get(0), row.get(1)), (IDS, IDS));
        let row = client.query_one("SELECT count(*) FROM applied", &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), IDS);
    })
    .await;
}

#[tokio::test]
async fn a_thousand_concurrent_deliveries_of_one_id_apply_it_once() {
    with_ledger(async |db| {
        let mut deliveries = Vec::new();
        for _ in 0..20 {
            let mut client = db.connect().await.client;
            deliveries.push(tokio::spawn(async move {
                let mut applied = 0;
                for _ in 0..50 {
                    applied += usize::from(apply(&mut client, "order-1").await.unwrap());
                }
                applied
            }));
        }
        let mut applied = 0;
        for delivery in deliveries {
            applied += delivery.await.unwrap();
        }
        assert_eq!(applied, 1);
        assert_eq!(db.effects("order-1").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_process_that_dies_before_the_commit_leaves_neither_effect_nor_id() {
    with_ledger(async |db| {
        let mut doomed = db.connect().await;
        {
            let mut tx = doomed.client.transaction().await.unwrap();
            assert!(ledger::once(&mut tx, "order-1").await.unwrap());
            tx.execute("INSERT INTO effects VALUES ('order-1')", &[]).await.unwrap();
            // Neither a commit nor the rollback that dropping would send may reach the server.
            std::mem::forget(tx);
        }
        doomed.die();

        // Waits, if need be, until the server has noticed the death.
        assert!(apply(&mut db.connect().await.client, "order-1").await.unwrap());
        assert_eq!(db.effects("order-1").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_process_that_dies_after_the_commit_is_not_repeated() {
    // The effect is committed, but the queue never hears of it and delivers again.
    with_ledger(async |db| {
        let mut doomed = db.connect().await;
        assert!(apply(&mut doomed.client, "order-1").await.unwrap());
        doomed.die();

        assert!(!apply(&mut db.connect().await.client, "order-1").await.unwrap());
        assert_eq!(db.effects("order-1").await, 1);
    })
    .await;
}

#[tokio::test]
async fn under_repeatable_read_a_concurrent_duplicate_is_busy_and_its_retry_false() {
    with_ledger(async |db| {
        let mut second = db.connect().await.client;
        let mut tx =
            second.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await.unwrap();
        tx.query_one("SELECT count(*) FROM applied", &[]).await.unwrap(); // fixes what this transaction can see
        assert!(apply(&mut db.connect().await.client, "order-1").await.unwrap());

        let error = ledger::once(&mut tx, "order-1").await.unwrap_err();
        assert!(matches!(error, LedgerError::Busy(_)), "{error:?}");
        assert!(!error.is_permanent());
        drop(tx);

        assert!(!apply(&mut second, "order-1").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_lock_timeout_bounds_the_wait_for_a_duplicate() {
    with_ledger(async |db| {
        let mut first = db.connect().await.client;
        let mut tx = first.transaction().await.unwrap();
        assert!(ledger::once(&mut tx, "order-1").await.unwrap());

        let mut second = db.connect().await.client;
        second.batch_execute("SET lock_timeout = '20ms'").await.unwrap();
        let error = apply(&mut second, "order-1").await.unwrap_err();
        assert!(matches!(error, LedgerError::Busy(_)), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn without_a_ledger_the_error_says_to_migrate() {
    with_empty_schema(async |db| {
        let mut client = db.connect().await.client;
        let mut tx = client.transaction().await.unwrap();

        let error = ledger::once(&mut tx, "order-1").await.unwrap_err();

        assert!(matches!(error, LedgerError::NotMigrated), "{error:?}");
        assert!(error.to_string().contains("ledger::migrate(&client)"), "{error}");
        assert!(!error.is_permanent(), "the message can wait for the ledger");
    })
    .await;
}

#[tokio::test]
async fn a_foreign_table_without_a_key_is_refused_instead_of_applying_every_time() {
    with_empty_schema(async |db| {
        let mut client = db.connect().await.client;
        client.batch_execute("CREATE TABLE applied (id TEXT)").await.unwrap();
        let mut tx = client.transaction().await.unwrap();

        let error = ledger::once(&mut tx, "order-1").await.unwrap_err();

        assert!(matches!(error, LedgerError::NotALedger { .. }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn an_id_that_cannot_be_a_key_is_refused_and_the_transaction_stays_usable() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;
        let mut tx = client.transaction().await.unwrap();
        let long = "x".repeat(ledger::ID_BYTES_MAX + 1);

        for (id, fault) in [
            ("", IdFault::Empty),
            ("a\0b", IdFault::ZeroByte),
            (long.as_str(), IdFault::TooLong { bytes: long.len(), max: ledger::ID_BYTES_MAX }),
        ] {
            let error = ledger::once(&mut tx, id).await.unwrap_err();
            assert!(matches!(error, LedgerError::Id(found) if found == fault), "{error:?}");
            assert!(error.is_permanent());
        }
        assert!(ledger::once(&mut tx, "order-1").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn ids_are_compared_byte_by_byte_up_to_the_longest() {
    with_ledger(async |db| {
        let mut client = db.connect().await.client;
        // Hard to compress, so that the index has to hold all of it.
        let mut state = 1_u32;
        let longest: String = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(33 + (state >> 24) as u8 % 94)
        })
        .take(ledger::ID_BYTES_MAX)
        .collect();
        for id in ["order", "Order", "order ", "örder", "o\u{308}rder", "'; DROP TABLE applied; --", &longest]
        {
            assert!(apply(&mut client, id).await.unwrap(), "{id}");
            assert!(!apply(&mut client, id).await.unwrap(), "{id}");
        }
    })
    .await;
}
