//! One ledger in three places: memory, a file, PostgreSQL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;

use super::applied::{Applied, LedgerFault};
use super::file::FileLedger;
use super::ids::{IdSet, Inserted, locked};
use super::postgres::PostgresLedger;

/// The most ids in one page.
pub const PAGE_MAX: usize = 10_000;

/// Where the ledger lives.
#[derive(Clone, Debug, Default)]
pub enum LedgerOptions {
    /// Forgotten with the process.
    #[default]
    Memory,
    /// Ids appended to a file, each synced before it is confirmed; survives `kill -9` and power cuts.
    File(PathBuf),
    /// The tables `applied` and `effects`, written in one transaction, with the ledger of redrive-postgres.
    Postgres(Url),
}

/// A database URL. It may hold a password, so it is not shown.
#[derive(Clone)]
pub struct Url(pub String);

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Url(…)")
    }
}

/// Some of the applied ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub ids: Vec<String>,
    /// Give this as `after` for the next page; `None` at the end.
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

    /// Applies `id`, once. When this returns, it is as durable as the ledger is. A second call with the same id waits
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

    /// How many ids are applied.
    pub async fn count(&self) -> Result<u64, LedgerFault> {
        match &self.place {
            LedgerPlace::Memory(ids) => Ok(locked(ids).len()),
            LedgerPlace::File(file) => Ok(file.read(IdSet::len)),
            LedgerPlace::Postgres(postgres) => postgres.count().await,
        }
    }

    /// Up to `limit` ids (at most [`PAGE_MAX`]) after `after`. The order is fixed, so pages read while nothing is
    /// applied give every id once; an id that is applied meanwhile may be missed.
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

    /// What somebody should know about how it was opened.
    pub fn notice(&self) -> Option<String> {
        match &self.place {
            LedgerPlace::File(file) => file.notice(),
            LedgerPlace::Memory(_) | LedgerPlace::Postgres(_) => None,
        }
    }
}
