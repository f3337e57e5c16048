//! The ledger: which message ids have been applied.
//!
//! All functions use the tables `applied` and `applied_meta` as the connection's `search_path` finds them. Two
//! handlers that share a schema share a ledger: if both apply an effect for the same message, give each its own
//! ids (`format!("billing/{id}")`) or its own schema.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use crate::error::of_statement;
use crate::{IdFault, LedgerError};

/// What [`migrate`] creates, for those who run migrations with a tool of their own.
pub const SCHEMA: &str = include_str!("schema.sql");

/// The version of [`SCHEMA`].
pub const VERSION: i32 = 1;

/// The longest id. A B-tree entry holds about 2,700 bytes; a Redrive message id has at most 512, which leaves room
/// for a prefix.
pub const ID_BYTES_MAX: usize = 2_048;

/// A batch for [`prune`] that takes tens of milliseconds on a small machine and so gets in nobody's way.
pub const PRUNE_BATCH: NonZeroU32 = NonZeroU32::new(1_000).expect("not zero");

/// Beyond this age nothing exists, and PostgreSQL's date arithmetic would overflow.
const PRUNE_AGE_MAX: Duration = Duration::from_hours(1_000 * 365 * 24);

/// Serialises [`migrate`] across processes; the bytes spell "redrive".
const MIGRATION_LOCK: i64 = 0x0072_6564_7269_7665;

/// Records `id` in the transaction of its effect. `true`: this is the first time, apply the effect and commit.
/// `false`: it was applied before, there is nothing to do.
///
/// - **The effect belongs into `tx`.** If the commit fails or the process dies, both are gone and a retry applies
///   them. A plain connection is not accepted: there the id would be committed before the effect.
/// - **Two transactions with the same id**: the second waits in this call until the first ends, then gets `false`
///   (committed) or `true` (rolled back). Set `lock_timeout` to bound the wait; keep slow calls out of the
///   transaction.
/// - **Isolation**: under `READ COMMITTED`, the default, there is no more to it. Under `REPEATABLE READ` and
///   `SERIALIZABLE` the second transaction gets [`LedgerError::Busy`] instead of `false`; its retry gets `false`.
/// - **Several ids in one transaction**: record them in sorted order, or two transactions can deadlock (one of them
///   gets [`LedgerError::Busy`]).
/// - **Savepoints**: a nested transaction forgets the id when it is rolled back. Never roll back the effect alone.
///
/// One round trip, no prepared statement, so it also works behind a pooler in transaction mode.
pub async fn once(tx: &mut Transaction<'_>, id: &str) -> Result<bool, LedgerError> {
    // The conflict target is named, so that a foreign table without that key is an error and not always "first".
    const INSERT: &str = "INSERT INTO applied (id) VALUES ($1) ON CONFLICT (id) DO NOTHING";
    check(id)?;
    let rows = tx.execute_typed(INSERT, &[(&id, Type::TEXT)]).await.map_err(of_statement)?;
    Ok(rows == 1)
}

/// Creates the ledger in the first schema of the connection's `search_path`, or finds that it is there.
///
/// Every process may call it at start, also at the same time. Once the ledger exists it only reads, so the handler's
/// role needs no right to create tables: `INSERT, SELECT` on `applied` and `SELECT` on `applied_meta` are enough.
pub async fn migrate(client: &Client) -> Result<(), LedgerError> {
    if installed(client).await? == Some(VERSION) {
        return Ok(());
    }
    // One message is one transaction: cancelled or killed, it leaves neither half a ledger nor a lock behind. The
    // lock is needed because concurrent CREATE TABLE IF NOT EXISTS can fail on PostgreSQL's own catalogue.
    let script = format!(
        "SELECT pg_advisory_xact_lock({MIGRATION_LOCK});
         DO $redrive$ BEGIN
             IF NOT EXISTS ({META_TABLE}) THEN
                 {SCHEMA}
             END IF;
         END $redrive$;"
    );
    client.batch_execute(&script).await.map_err(of_statement)?;
    match installed(client).await? {
        Some(VERSION) => Ok(()),
        Some(found) => Err(LedgerError::TooNew { found, known: VERSION }),
        None => Err(LedgerError::NotMigrated),
    }
}

/// Forgets ids applied longer than `older_than` ago, `batch` rows per transaction, and returns how many.
///
/// **A message that is delivered again after its id was pruned is applied again.** `older_than` must therefore be
/// longer than any retry, redelivery or replay can come late: for dead letters that is as long as they are kept.
/// [`horizon`] moves before the first row is deleted, so it never promises an id that is gone.
///
/// Safe to call from many processes and to cancel; what is left is deleted by the next call. The role needs `DELETE`
/// and `UPDATE` on `applied` (rows are locked first) and `SELECT, UPDATE` on `applied_meta`.
pub async fn prune(client: &Client, older_than: Duration, batch: NonZeroU32) -> Result<u64, LedgerError> {
    // One cutoff for all batches, by the server's clock: the loop ends although new ids keep arriving.
    const MOVE_HORIZON: &str = "WITH cutoff AS (SELECT now() - make_interval(secs => $1) AS at)
        UPDATE applied_meta SET complete_since = GREATEST(complete_since, cutoff.at) FROM cutoff RETURNING cutoff.at";
    // The array is computed once; with IN (… LIMIT …) the planner may run the subquery again and exceed the batch.
    // `$1` skips the index entries of the batches before, which are dead but not yet vacuumed.
    const DELETE_BATCH: &str = "WITH forgotten AS (
            DELETE FROM applied WHERE id = ANY (ARRAY (
                SELECT id FROM applied WHERE applied_at >= $1 AND applied_at < $2
                ORDER BY applied_at LIMIT $3 FOR UPDATE SKIP LOCKED))
            RETURNING applied_at)
        SELECT count(*), max(applied_at) FROM forgotten";

    let age = older_than.min(PRUNE_AGE_MAX).as_secs_f64();
    let row = client.query_typed_one(MOVE_HORIZON, &[(&age, Type::FLOAT8)]).await.map_err(of_statement)?;
    let cutoff: SystemTime = row.try_get(0).map_err(LedgerError::Database)?;

    let limit = i64::from(batch.get());
    let mut from = SystemTime::UNIX_EPOCH;
    let mut total = 0;
    loop {
        let row = client
            .query_typed_one(
                DELETE_BATCH,
                &[(&from, Type::TIMESTAMPTZ), (&cutoff, Type::TIMESTAMPTZ), (&limit, Type::INT8)],
            )
            .await
            .map_err(of_statement)?;
        let deleted: i64 = row.try_get(0).map_err(LedgerError::Database)?;
        total += deleted as u64;
        match row.try_get(1).map_err(LedgerError::Database)? {
            Some(newest) if deleted == limit => from = newest,
            _ => return Ok(total),
        }
    }
}

/// Since when the ledger is complete: every id applied at or after this moment is in it. Starts as the time of
/// [`migrate`] and moves forward with each [`prune`].
///
/// A letter whose first attempt is older may have been applied without the ledger knowing; replaying it can apply
/// it a second time. The time is the database server's; allow for the difference to other clocks.
pub async fn horizon(client: &Client) -> Result<SystemTime, LedgerError> {
    let row =
        client.query_typed_one("SELECT complete_since FROM applied_meta", &[]).await.map_err(of_statement)?;
    row.try_get(0).map_err(LedgerError::Database)
}

/// Only the schema in which CREATE TABLE would create: a ledger further down the path belongs to somebody else.
const META_TABLE: &str =
    "SELECT FROM pg_catalog.pg_tables WHERE schemaname = current_schema() AND tablename = 'applied_meta'";

/// The version of the ledger in the first schema of the search path.
async fn installed(client: &Client) -> Result<Option<i32>, LedgerError> {
    if client.query_typed(META_TABLE, &[]).await.map_err(of_statement)?.is_empty() {
        return Ok(None);
    }
    let row = client.query_typed_one("SELECT version FROM applied_meta", &[]).await.map_err(of_statement)?;
    Ok(Some(row.try_get(0).map_err(LedgerError::Database)?))
}

fn check(id: &str) -> Result<(), IdFault> {
    match id.len() {
        0 => Err(IdFault::Empty),
        bytes if bytes > ID_BYTES_MAX => Err(IdFault::TooLong { bytes, max: ID_BYTES_MAX }),
        _ if id.contains('\0') => Err(IdFault::ZeroByte),
        _ => Ok(()),
    }
}
