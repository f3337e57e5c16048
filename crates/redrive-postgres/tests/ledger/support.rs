//! A real PostgreSQL for each test: a schema of its own on the server that `scripts/postgres.sh` starts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive_postgres::{LedgerError, ledger};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls};

/// Longer than anything here takes on a busy machine; only a hanging test gets there.
const PATIENCE: Duration = Duration::from_mins(5);

pub(crate) struct Db {
    config: Config,
    pub(crate) schema: String,
}

/// A connection and the task that serves its socket.
pub(crate) struct Connection {
    pub(crate) client: Client,
    socket: JoinHandle<()>,
}

impl Connection {
    /// What the server sees when the process is killed: the socket closes, nobody says goodbye.
    pub(crate) fn die(self) {
        self.socket.abort();
    }
}

/// Runs `test` with an empty schema. It is dropped afterwards; that of a failed test stays for inspection.
pub(crate) async fn with_empty_schema(test: impl AsyncFnOnce(&Db)) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").subsec_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("redrive_test_{}_{nanos}_{count}", std::process::id());
    let mut config: Config = server_url().parse().expect("a PostgreSQL URL");
    config.options(format!("-c search_path={schema}"));

    let db = Db { config, schema };
    let admin = db.connect().await;
    admin.client.batch_execute(&format!("CREATE SCHEMA {}", db.schema)).await.expect("create schema");
    tokio::time::timeout(PATIENCE, test(&db)).await.expect("the test hangs");
    admin.client.batch_execute(&format!("DROP SCHEMA {} CASCADE", db.schema)).await.expect("drop schema");
}

/// Runs `test` with a ledger and a table `effects` that accepts anything, also twice.
pub(crate) async fn with_ledger(test: impl AsyncFnOnce(&Db)) {
    with_empty_schema(async |db: &Db| {
        let client = db.connect().await.client;
        ledger::migrate(&client).await.expect("migrate");
        client.batch_execute("CREATE TABLE effects (id TEXT NOT NULL)").await.expect("create effects");
        test(db).await;
    })
    .await;
}

impl Db {
    pub(crate) async fn connect(&self) -> Connection {
        let (client, connection) = self
            .config
            .connect(NoTls)
            .await
            .expect("connect to the test server; run scripts/postgres.sh start");
        let socket = tokio::spawn(async move {
            // An error here is a connection that a test has cut; the client's next call reports it.
            let _ = connection.await;
        });
        Connection { client, socket }
    }

    /// How often the effect of `id` happened.
    pub(crate) async fn effects(&self, id: &str) -> i64 {
        self.number("SELECT count(*) FROM effects WHERE id = $1", id).await
    }

    /// Waits until the server reports that `backend` waits for a lock.
    pub(crate) async fn wait_until_blocked(&self, backend: i32) {
        let client = self.connect().await.client;
        let blocked = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'";
        while client.query_one(blocked, &[&backend]).await.expect("activity").get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn number(&self, query: &str, id: &str) -> i64 {
        self.connect().await.client.query_one(query, &[&id]).await.expect("count").get(0)
    }
}

/// A handler as a user would write it. Says whether this delivery applied the effect.
pub(crate) async fn apply(client: &mut Client, id: &str) -> Result<bool, LedgerError> {
    let mut tx = client.transaction().await.expect("begin");
    if !ledger::once(&mut tx, id).await? {
        return Ok(false);
    }
    tx.execute("INSERT INTO effects VALUES ($1)", &[&id]).await.expect("the effect");
    tx.commit().await.expect("commit");
    Ok(true)
}

pub(crate) async fn backend_pid(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.expect("backend pid").get(0)
}

/// The server for the tests. Without one they fail: a skipped test would look like a passed one.
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
