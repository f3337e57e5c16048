//! The ledger in PostgreSQL: the id in `applied` and the effect in `effects`, in one transaction.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use redrive_postgres::ledger;
use tokio::sync::Semaphore;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls};

use super::applied::{Applied, LedgerFault};

/// Maximum number of connections; further calls wait.
const CONNECTIONS_MAX: usize = 8;

/// The effect. It has no unique key on purpose: if the ledger let an id through twice, there would be two rows.
const EFFECTS: &str = "SELECT pg_advisory_xact_lock(7335);
    CREATE TABLE IF NOT EXISTS effects (order_id TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())";

pub(super) struct PostgresLedger {
    config: Config,
    idle: Mutex<Vec<Client>>,
    room: Semaphore,
}

impl PostgresLedger {
    pub(super) async fn connect(url: &str) -> Result<Self, LedgerFault> {
        let config = url.parse().map_err(|_| LedgerFault::Url)?;
        let new = Self { config, idle: Mutex::default(), room: Semaphore::new(CONNECTIONS_MAX) };
        let client = new.client().await?;
        ledger::migrate(&client).await?;
        client.batch_execute(EFFECTS).await.map_err(LedgerFault::Effect)?;
        new.put_back(client);
        Ok(new)
    }

    pub(super) async fn apply(&self, id: &str) -> Result<Applied, LedgerFault> {
        const EFFECT: &str = "INSERT INTO effects (order_id) VALUES ($1)";
        // The semaphore is never closed. If it were, the call would only open an extra connection.
        let _permit = self.room.acquire().await;
        // If this call is dropped midway, so is the connection, and PostgreSQL rolls back.
        let mut client = self.client().await?;
        let mut tx = client.transaction().await.map_err(LedgerFault::Effect)?;
        let first = ledger::once(&mut tx, id).await?;
        if first {
            tx.execute_typed(EFFECT, &[(&id, Type::TEXT)]).await.map_err(LedgerFault::Effect)?;
            tx.commit().await.map_err(LedgerFault::Effect)?;
        } else {
            tx.rollback().await.map_err(LedgerFault::Effect)?;
        }
        self.put_back(client);
        Ok(if first { Applied::First } else { Applied::Again })
    }

    pub(super) async fn contains(&self, id: &str) -> Result<bool, LedgerFault> {
        Ok(!self.ids("SELECT id FROM applied WHERE id = $1 LIMIT $2", id, 1).await?.is_empty())
    }

    pub(super) async fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, LedgerFault> {
        // Ids are never empty, so the empty string precedes all of them.
        let after = after.unwrap_or_default();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.ids("SELECT id FROM applied WHERE id > $1 ORDER BY id LIMIT $2", after, limit).await
    }

    pub(super) async fn count(&self) -> Result<u64, LedgerFault> {
        let _permit = self.room.acquire().await;
        let client = self.client().await?;
        let row = client.query_typed_one("SELECT count(*) FROM applied", &[]).await;
        let count: i64 = row.and_then(|row| row.try_get(0)).map_err(LedgerFault::Effect)?;
        self.put_back(client);
        Ok(count.cast_unsigned())
    }

    async fn ids(&self, query: &str, id: &str, limit: i64) -> Result<Vec<String>, LedgerFault> {
        let _permit = self.room.acquire().await;
        let client = self.client().await?;
        let rows = client.query_typed(query, &[(&id, Type::TEXT), (&limit, Type::INT8)]).await;
        let ids = rows.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect());
        self.put_back(client);
        ids.map_err(LedgerFault::Effect)
    }

    /// Returns an idle connection or opens a new one. A connection whose call failed is not returned to the pool.
    async fn client(&self) -> Result<Client, LedgerFault> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(client) = idle() {
            if !client.is_closed() {
                return Ok(client);
            }
        }
        let connected = self.config.connect(NoTls).await;
        let (client, connection) = connected.map_err(|error| LedgerFault::Connect(cause_of(&error)))?;
        // The client's next call reports connection errors.
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    fn put_back(&self, client: Client) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }
}

/// The error with its cause. Neither contains host or user.
fn cause_of(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Leaves out the configuration, which contains the password.
impl fmt::Debug for PostgresLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresLedger")
    }
}
