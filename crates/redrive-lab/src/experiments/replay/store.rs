//! Where the replay experiment stores effects: in memory, or in PostgreSQL with the ledger of redrive-postgres.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use redrive::Failure;
use tokio_postgres::{Client, NoTls};

use crate::downstream::ledger::{Applied, Ledger, LedgerOptions, Url};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Applies effects, once per id if there is a ledger.
#[derive(Clone, Debug)]
pub struct Effects {
    /// `None` makes every call an effect.
    ledger: Option<Arc<Ledger>>,
    counts: Arc<Vec<AtomicU8>>,
}

impl Effects {
    /// Applies the order, unless the ledger knows it.
    pub async fn apply(&self, id: &str, number: u64) -> Result<(), Failure> {
        let is_first = match &self.ledger {
            Some(ledger) => ledger.apply(id).await? == Applied::First,
            None => true,
        };
        if is_first {
            self.counts[number as usize].fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

/// The storage of one run.
#[derive(Debug)]
pub struct Store {
    effects: Effects,
    /// A client for queries, and the schema of this run.
    postgres: Option<(Client, String)>,
}

impl Store {
    pub async fn open(url: Option<&str>, messages: u64, with_ledger: bool) -> Result<Self, Error> {
        let counts = Arc::new((0..messages).map(|_| AtomicU8::new(0)).collect::<Vec<_>>());
        let (options, postgres) = match url.filter(|_| with_ledger) {
            None => (LedgerOptions::Memory, None),
            Some(url) => {
                let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
                let schema = format!("redrive_lab_{}_{nanos}", std::process::id());
                let sign = if url.contains('?') { '&' } else { '?' };
                let url = format!("{}{sign}options=-c%20search_path%3D{schema}", url.trim());
                let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
                tokio::spawn(async move { drop(connection.await) });
                client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
                (LedgerOptions::Postgres(Url(url)), Some((client, schema)))
            }
        };
        let ledger = if with_ledger { Some(Arc::new(Ledger::open(&options).await?)) } else { None };
        Ok(Self { effects: Effects { ledger, counts }, postgres })
    }

    pub fn effects(&self) -> Effects {
        self.effects.clone()
    }

    /// The number of effects per message.
    pub async fn counts(&self) -> Result<Vec<u8>, Error> {
        if let Some((client, _)) = &self.postgres {
            let rows = client.query_one("SELECT count(*) FROM effects", &[]).await?;
            let (stored, counted): (i64, i64) = (rows.get(0), self.sum());
            if stored != counted {
                return Err(format!("{stored} effects are stored, {counted} were reported").into());
            }
        }
        Ok(self.effects.counts.iter().map(|count| count.load(Relaxed)).collect())
    }

    fn sum(&self) -> i64 {
        self.effects.counts.iter().map(|count| i64::from(count.load(Relaxed))).sum()
    }

    /// Queries the tables, drops them and returns each query with its answer.
    pub async fn close(self) -> Result<Vec<String>, Error> {
        let Some((client, schema)) = self.postgres else { return Ok(Vec::new()) };
        let mut said = Vec::new();
        for query in [
            "SELECT count(*) FROM applied",
            "SELECT count(*) FROM effects",
            "SELECT count(*) FROM (SELECT order_id FROM effects GROUP BY order_id HAVING count(*) > 1) AS twice",
        ] {
            let answer: i64 = client.query_one(query, &[]).await?.get(0);
            said.push(format!("`{query}` → {answer}"));
        }
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
        Ok(said)
    }
}
