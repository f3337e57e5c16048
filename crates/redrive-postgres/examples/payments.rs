//! A pipeline on the embedded engine whose handler books payments in PostgreSQL, each once: the answer of every tenth
//! payment is lost after the booking, so it is delivered again, and the ledger makes the second delivery a no-op.
//!
//! ```console
//! $ scripts/postgres.sh start
//! $ cargo run -p redrive-postgres --example payments
//! ```
//!
//! Uses the server in `REDRIVE_TEST_POSTGRES` or the one that the script started. Exits with 1 if a cent is wrong.

use std::collections::HashSet;
use std::error::Error;
use std::sync::{Arc, Mutex};

use redrive::{Embedded, Failure, Message, Pipeline, Policy, Redrive};
use redrive_postgres::ledger;
use tokio::sync::Mutex as Connection;
use tokio_postgres::{Client, Config, NoTls};

const PAYMENTS: i64 = 30;
const CENTS: i64 = 7;

/// What the handler needs: the database, and which answers have been lost already.
#[derive(Clone)]
struct Shop {
    db: Arc<Connection<Client>>,
    lost: Arc<Mutex<HashSet<String>>>,
}

impl Shop {
    /// The id and the effect are committed together: whatever happens after, the booking is not made twice.
    async fn charge(&self, message: &Message) -> Result<(), Failure> {
        let mut db = self.db.lock().await;
        let mut tx = db.transaction().await?;
        if !ledger::once(&mut tx, message.id()).await? {
            return Ok(());
        }
        tx.execute("UPDATE account SET cents = cents + $1", &[&CENTS]).await?;
        tx.commit().await?;
        if message.id().ends_with('3')
            && self.lost.lock().expect("not poisoned").insert(message.id().to_owned())
        {
            return Err(Failure::transient("the answer was lost").ambiguous());
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shop = Shop { db: Arc::new(Connection::new(connect().await?)), lost: Arc::default() };
    let dir = tempfile::tempdir()?;
    let handler = shop.clone();
    let redrive = Redrive::builder()
        .engine(Embedded::open(dir.path())?)
        .pipeline(Pipeline::new("payments").policy(Policy::tiers(["20ms", "50ms", "100ms"])).handler_fn(
            move |message| {
                let shop = handler.clone();
                async move { shop.charge(&message).await }
            },
        ))
        .build()?;
    let pipeline = redrive.pipeline("payments").ok_or("the pipeline that was just made")?;
    let messages = (0..PAYMENTS).map(|n| Message::builder(format!("p-{n}")).build());
    pipeline.ingest(messages.collect::<Result<Vec<_>, _>>()?).await?;

    let all_done = async {
        loop {
            let counts = pipeline.counts().await.expect("the pipeline runs");
            if counts.pending() == 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let report = redrive.run_until(all_done).await?;
    let booked: i64 = shop.db.lock().await.query_one("SELECT cents FROM account", &[]).await?.get(0);
    let lost = shop.lost.lock().expect("not poisoned").len();
    println!(
        "{PAYMENTS} payments, {lost} answers lost and delivered again: {booked} cents booked\n{report:?}"
    );
    if booked != PAYMENTS * CENTS || lost == 0 {
        return Err(format!("expected {} cents and lost answers", PAYMENTS * CENTS).into());
    }
    Ok(())
}

/// A connection with a schema of its own.
async fn connect() -> Result<Client, Box<dyn Error>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/postgres/url");
    let url = std::env::var("REDRIVE_TEST_POSTGRES")
        .or_else(|_| std::fs::read_to_string(file))
        .map_err(|_| "no PostgreSQL server: run scripts/postgres.sh start, or set REDRIVE_TEST_POSTGRES")?;
    let schema = format!("redrive_payments_{}", std::process::id());
    let mut config: Config = url.trim().parse()?;
    let (client, connection) = config.options(format!("-c search_path={schema}")).connect(NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).await?;
    ledger::migrate(&client).await?;
    client.batch_execute("CREATE TABLE account (cents BIGINT); INSERT INTO account VALUES (0)").await?;
    Ok(client)
}
