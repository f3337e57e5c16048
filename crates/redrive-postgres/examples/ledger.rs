//! Applies each payment once although the queue delivers it again: after a crash, after a lost answer, and five
//! times at once.
//!
//! ```console
//! $ scripts/postgres.sh start
//! $ cargo run -p redrive-postgres --example ledger
//! ```
//!
//! Uses the server in `REDRIVE_TEST_POSTGRES` or the one that the script started, in a schema of its own that is
//! removed at the end. Exits with 1 if a payment was booked twice or not at all.

use std::error::Error;
use std::process::ExitCode;

use redrive_postgres::ledger;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What a queue hands to the handler; with Redrive this is a `Message` and the id is `message.id()`.
struct Payment {
    id: &'static str,
    account: &'static str,
    cents: i64,
}

/// The handler: the id and the effect are committed together. Says whether this delivery booked the payment.
async fn book(client: &mut Client, payment: &Payment) -> Result<bool> {
    let mut tx = client.transaction().await?;
    if !ledger::once(&mut tx, payment.id).await? {
        return Ok(false);
    }
    let update = "UPDATE account SET cents = cents + $1 WHERE name = $2";
    tx.execute(update, &[&payment.cents, &payment.account]).await?;
    tx.commit().await?;
    Ok(true)
}

/// The same handler, killed just before the commit.
async fn book_and_die(db: &Config, payment: &Payment) -> Result<()> {
    let (mut client, socket) = connect(db).await?;
    let mut tx = client.transaction().await?;
    ledger::once(&mut tx, payment.id).await?;
    let update = "UPDATE account SET cents = cents + $1 WHERE name = $2";
    tx.execute(update, &[&payment.cents, &payment.account]).await?;
    socket.abort(); // the server sees what a kill -9 looks like: the connection is gone
    Ok(())
}

async fn deliver_again_and_again(db: &Config) -> Result<bool> {
    const RENT: Payment = Payment { id: "payment-1", account: "alice", cents: 100 };
    const REFUND: Payment = Payment { id: "payment-2", account: "alice", cents: 20 };

    let (mut client, _socket) = connect(db).await?;
    ledger::migrate(&client).await?;
    client.batch_execute("CREATE TABLE account (name TEXT PRIMARY KEY, cents BIGINT NOT NULL)").await?;
    client.batch_execute("INSERT INTO account VALUES ('alice', 0)").await?;

    let mut right = true;
    let mut expect = |what: &str, found: i64, expected: i64| {
        println!("{} {what}: {found}", if found == expected { "ok   " } else { "WRONG" });
        right &= found == expected;
    };

    book_and_die(db, &RENT).await?;
    expect("killed before the commit, cents booked", balance(&client).await?, 0);

    expect("delivered again, bookings", i64::from(book(&mut client, &RENT).await?), 1);
    expect("answer lost, delivered again, bookings", i64::from(book(&mut client, &RENT).await?), 0);
    expect("cents booked", balance(&client).await?, 100);

    let mut copies = Vec::new();
    for _ in 0..5 {
        let (mut client, _socket) = connect(db).await?;
        copies.push(tokio::spawn(async move { book(&mut client, &REFUND).await }));
    }
    let mut bookings = 0;
    for copy in copies {
        bookings += i64::from(copy.await??);
    }
    expect("five copies at once, bookings", bookings, 1);
    expect("cents booked", balance(&client).await?, 120);
    Ok(right)
}

async fn balance(client: &Client) -> Result<i64> {
    Ok(client.query_one("SELECT cents FROM account WHERE name = 'alice'", &[]).await?.get(0))
}

async fn connect(db: &Config) -> Result<(Client, JoinHandle<()>)> {
    let (client, connection) = db.connect(NoTls).await?;
    let socket = tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("connection lost: {error}");
        }
    });
    Ok((client, socket))
}

fn server() -> Result<Config> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/postgres/url");
    let url = std::env::var("REDRIVE_TEST_POSTGRES")
        .or_else(|_| std::fs::read_to_string(file))
        .map_err(|_| "no PostgreSQL server: run scripts/postgres.sh start, or set REDRIVE_TEST_POSTGRES")?;
    Ok(url.trim().parse()?)
}

async fn run() -> Result<bool> {
    let mut db = server()?;
    let schema = format!("redrive_example_{}", std::process::id());
    let (admin, _socket) = connect(&db).await?;
    admin.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    db.options(format!("-c search_path={schema}"));
    let result = deliver_again_and_again(&db).await;
    admin.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
    result
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}
