//! One ledger with three backends: memory, a file, PostgreSQL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;

use super::applied::{Applied, LedgerFault};
use super::file::FileLedger;
use super::ids::{IdSet, Inserted, locked};
use super::postgres::PostgresLedger;

/// Maximum number of ids per page.
pub const PAGE_MAX: usize = 10_000;

/// Where the ledger is kept.
#[derive(Clone, Debug, Default)]
pub enum LedgerOptions {
    /// Lost when the process ends.
    #[default]
    Memory,
    /// Ids are appended to a file and synced before they are confirmed; survives `kill -9` and power cuts.
    File(PathBuf),
    /// The tables `applied` and `effects`, written in one transaction by the ledger of redrive-postgres.
    Postgres(Url),
}

/// A database URL. It may contain a password, so `Debug` hides it.
#[derive(Clone)]
pub struct Url(pub String);

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Url(…)")
    }
}

/// A page of applied ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub ids: Vec<String>,
    /// The `after` of the next page; `None` at the end.
    pub next: Option<String>,
}

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    place: LedgerPlace,
}

#[derive(Debug)]
enum LedgerPlace {
    Memory(Mutex<IdSet>),
    File(FileLedger),
    Postgres(Box<PostgresLedger>),
}

impl Ledger {
    pub async fn open(options: &LedgerOptions) -> Result<Self, LedgerFault> {
        let place = match options {
            LedgerOptions::Memory => LedgerPlace::Memory(Mutex::default()),
            LedgerOptions::File(path) => LedgerPlace::File(FileLedger::open(path)?),
            LedgerOptions::Postgres(url) => {
                LedgerPlace::Postgres(Box::new(PostgresLedger::connect(&url.0).await?))
            }
        };
        Ok(Self { place })
    }

    /// Applies `id` once. On return it is as durable as the backend allows. A concurrent call with the same id waits
    /// for the first.
    pub async fn apply(&self, id: &str) -> Result<Applied, LedgerFault> {
        match &self.place {
            LedgerPlace::Memory(ids) => match locked(ids).insert(id) {
                Inserted::New => Ok(Applied::First),
                Inserted::Known => Ok(Applied::Again),
                Inserted::Full => Err(LedgerFault::Full),
            },
            LedgerPlace::File(file) => file.apply(id).await,
            LedgerPlace::Postgres(postgres) => postgres.apply(id).await,
        }
    }

    pub async fn contains(&self, id: &str) -> Result<bool, LedgerFault> {
        match &self.place {
            LedgerPlace::Memory(ids) => Ok(locked(ids).contains(id)),
            LedgerPlace::File(file) => Ok(file.read(|ids| ids.contains(id))),
            LedgerPlace::Postgres(postgres) => postgres.contains(id).await,
        }
    }

    /// The number of applied ids.
    pub async fn count(&self) -> Result<u64, LedgerFault> {
        match &self.place {
            LedgerPlace::Memory(ids) => Ok(locked(ids).len()),
            LedgerPlace::File(file) => Ok(file.read(IdSet::len)),
            LedgerPlace::Postgres(postgres) => postgres.count().await,
        }
    }

    /// Returns up to `limit` ids (at most [`PAGE_MAX`]) after `after`. The order is fixed, so paging while nothing is
    /// applied returns every id once; an id that is applied meanwhile may be missed.
    pub async fn page(&self, after: Option<&str>, limit: usize) -> Result<Page, LedgerFault> {
        let limit = limit.clamp(1, PAGE_MAX);
        let ids = match &self.place {
            LedgerPlace::Memory(ids) => locked(ids).page(after, limit),
            LedgerPlace::File(file) => file.read(|ids| ids.page(after, limit)),
            LedgerPlace::Postgres(postgres) => postgres.page(after, limit).await?,
        };
        let next = ids.last().filter(|_| ids.len() == limit).cloned();
        Ok(Page { ids, next })
    }

    /// A warning about how the ledger was opened, if any.
    pub fn notice(&self) -> Option<String> {
        match &self.place {
            LedgerPlace::File(file) => file.notice(),
            LedgerPlace::Memory(_) | LedgerPlace::Postgres(_) => None,
        }
    }
}
