//! The ledgers: in a file with kills and torn writes, and in a real PostgreSQL.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive_lab::downstream::ledger::{Ledger, Url};
use redrive_lab::downstream::{Applied, Downstream, DownstreamOptions, LedgerOptions};
use tokio_postgres::NoTls;

async fn open(path: &Path) -> Ledger {
    // The thread of the previous ledger may still hold the lock for a moment.
    for _ in 0..1_000 {
        match Ledger::open(&LedgerOptions::File(path.to_owned())).await {
            Ok(ledger) => return ledger,
            Err(redrive_lab::downstream::LedgerFault::Locked { .. }) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the lock was never released");
}

async fn all(ledger: &Ledger) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = ledger.page(after.as_deref(), 7).await.unwrap();
        ids.extend(page.ids);
        match page.next {
            Some(next) => after = Some(next),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn a_file_ledger_knows_what_it_applied_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("applied");
    let ids: Vec<String> = (0..50).map(|n| format!("o-{n}")).chain(["odd \"id\"\n".to_owned()]).collect();
    {
        let ledger = open(&path).await;
        for id in &ids {
            assert_eq!(ledger.apply(id).await.unwrap(), Applied::First);
        }
    }
    let ledger = open(&path).await;
    assert_eq!(all(&ledger).await, ids);
    for id in &ids {
        assert_eq!(ledger.apply(id).await.unwrap(), Applied::Again, "{id}");
    }
    assert_eq!(ledger.count().await.unwrap(), 51);
    assert_eq!(ledger.notice(), None);
}

/// A crash can leave any prefix of the last write, or garbage in its place, but never lose a confirmed id.
#[tokio::test]
async fn a_torn_end_of_the_file_is_cut_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("applied");
    let whole = "\"o-1\"\n\"o-2\"\n";
    for torn in ["\"", "\"o-3", "\"o-3\"", "\0\0\0\0", "\0\0\0\n\"o-4\"\n", "o-3\n", "\u{fffd}"] {
        std::fs::write(&path, format!("{whole}{torn}")).unwrap();
        let ledger = open(&path).await;
        assert_eq!(all(&ledger).await, ["o-1", "o-2"], "{torn:?}");
        let notice = ledger.notice().unwrap();
        assert!(notice.contains(&format!("{} bytes", torn.len())), "{notice}");
        assert_eq!(ledger.apply("o-5").await.unwrap(), Applied::First);
        drop(ledger);
        drop(open(&path).await);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{whole}\"o-5\"\n"));
    }
}

#[tokio::test]
async fn two_processes_do_not_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("applied");
    let first = open(&path).await;
    let second = Ledger::open(&LedgerOptions::File(path.clone())).await;
    assert!(second.unwrap_err().to_string().contains("another process uses the ledger file"));
    drop(first);
    let nowhere = Ledger::open(&LedgerOptions::File(dir.path().join("no/such/dir"))).await;
    assert!(nowhere.unwrap_err().to_string().contains("check the path"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_copies_at_the_same_time_are_applied_once_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Arc::new(open(&dir.path().join("applied")).await);
    assert_eq!(race(&ledger, 20, 8).await, 20);
    assert_eq!(ledger.count().await.unwrap(), 20);
}

/// Applies `ids` ids from `copies` tasks each; returns how many calls were the first for their id.
async fn race(ledger: &Arc<Ledger>, ids: u32, copies: u32) -> usize {
    let mut tasks = Vec::new();
    for n in 0..ids * copies {
        let ledger = Arc::clone(ledger);
        tasks.push(tokio::spawn(async move { ledger.apply(&format!("o-{}", n % ids)).await.unwrap() }));
    }
    let mut first = 0;
    for task in tasks {
        first += usize::from(task.await.unwrap() == Applied::First);
    }
    first
}

/// Runs a test in its own schema on the server that `scripts/postgres.sh` starts, with the URL and a client for
/// queries.
async fn with_schema(test: impl AsyncFnOnce(String, &tokio_postgres::Client)) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").subsec_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("redrive_lab_{}_{nanos}_{count}", std::process::id());
    let url = format!("{}?options=-c%20search_path%3D{schema}&application_name={schema}", server_url());
    let (client, connection) = tokio_postgres::connect(&url, NoTls)
        .await
        .expect("connect to the test server; run scripts/postgres.sh start");
    tokio::spawn(async move { drop(connection.await) });
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.expect("create schema");
    test(url, &client).await;
    client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("drop schema");
}

/// The test server. Without one the tests fail: a skipped test would look like a passed one.
fn server_url() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/postgres/url");
    let url = std::env::var("REDRIVE_TEST_POSTGRES").or_else(|_| std::fs::read_to_string(file));
    url.expect(
        "these tests need a PostgreSQL server: run scripts/postgres.sh start, \
         or set REDRIVE_TEST_POSTGRES=postgres://user:password@host:port/database",
    )
    .trim()
    .to_owned()
}

async fn count(client: &tokio_postgres::Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.expect("count").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_postgresql_the_id_and_the_effect_are_written_together_and_once() {
    with_schema(async |url, client| {
        let ledger = Arc::new(Ledger::open(&LedgerOptions::Postgres(Url(url.clone()))).await.unwrap());
        assert_eq!(race(&ledger, 20, 5).await, 20);
        assert_eq!(ledger.count().await.unwrap(), 20);
        assert_eq!(count(client, "SELECT count(*) FROM effects").await, 20);
        assert_eq!(count(client, "SELECT count(DISTINCT order_id) FROM effects").await, 20);
        assert!(ledger.contains("o-7").await.unwrap() && !ledger.contains("o-20").await.unwrap());
        let mut ids = all(&ledger).await;
        ids.sort_by_key(|id| id[2..].parse::<u32>().unwrap());
        assert_eq!(ids, (0..20).map(|n| format!("o-{n}")).collect::<Vec<_>>());

        // A second process finds what the first applied.
        let again = Ledger::open(&LedgerOptions::Postgres(Url(url))).await.unwrap();
        assert_eq!(again.apply("o-3").await.unwrap(), Applied::Again);
    })
    .await;
}

/// A failed effect must roll back its id; otherwise the retry would find it applied, and the effect would be lost.
#[tokio::test]
async fn an_effect_that_fails_takes_its_id_back() {
    with_schema(async |url, client| {
        let ledger = LedgerOptions::Postgres(Url(url));
        let stub =
            Downstream::open(&DownstreamOptions { ledger, ..DownstreamOptions::default() }).await.unwrap();
        client.batch_execute("ALTER TABLE effects ADD CHECK (order_id <> 'o-1') NOT VALID").await.unwrap();
        let failed = stub.handle("o-1", 1, b"{}").await.unwrap_err();
        assert_eq!(failed.status(), 503);
        assert!(failed.into_failure().is_ambiguous());
        assert_eq!(count(client, "SELECT count(*) FROM applied").await, 0);
        client.batch_execute("ALTER TABLE effects DROP CONSTRAINT effects_order_id_check").await.unwrap();
        assert_eq!(stub.handle("o-1", 2, b"{}").await.unwrap(), Applied::First);
        assert_eq!(count(client, "SELECT count(*) FROM effects").await, 1);
    })
    .await;
}

#[tokio::test]
async fn connections_that_were_cut_are_replaced() {
    with_schema(async |url, client| {
        let ledger = Ledger::open(&LedgerOptions::Postgres(Url(url))).await.unwrap();
        ledger.apply("o-1").await.unwrap();
        // Only connections of this test: others run on the same server.
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE application_name = current_schema() AND pid <> pg_backend_pid()";
        assert_eq!(count(client, cut).await, 1);
        let applied = async {
            while ledger.apply("o-2").await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(5), applied).await.expect("the ledger never recovered");
        assert_eq!(ledger.count().await.unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_password_is_in_no_message() {
    let open = async |url: &str| {
        let options = LedgerOptions::Postgres(Url(url.to_owned()));
        let error = Ledger::open(&options).await.unwrap_err();
        format!("{error} {error:?} {options:?}")
    };
    for url in ["postgres://me:s3cret@127.0.0.1:1/db", "postgres://me:s3cret@[bad/db"] {
        let text = open(url).await;
        assert!(!text.contains("s3cret"), "{text}");
    }
}
