//! The result of applying an id, and the errors of a ledger.

/// The result of applying an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The effect happened now.
    First,
    /// The effect had happened before; nothing was done.
    Again,
}

#[derive(Debug, thiserror::Error)]
pub enum LedgerFault {
    #[error("the ledger file {path} {did}: {error}; {fix}")]
    File { path: String, did: &'static str, error: String, fix: &'static str },
    #[error("another process uses the ledger file {path}; stop it, or give this one a file of its own")]
    Locked { path: String },
    #[error("the ledger has stopped after a failed write; start the downstream again")]
    Stopped,
    #[error("the ledger holds as many ids as it may; start the downstream with an empty one")]
    Full,
    #[error("the id has {bytes} bytes, the ledger takes at most {max}")]
    LongId { bytes: usize, max: usize },
    #[error(
        "the URL of the ledger is not one of PostgreSQL; write it like postgres://user:password@host/database"
    )]
    Url,
    #[error("cannot connect to PostgreSQL: {0}")]
    Connect(String),
    #[error(transparent)]
    Postgres(#[from] redrive_postgres::LedgerError),
    #[error("PostgreSQL did not apply the effect: {0}")]
    Effect(#[source] tokio_postgres::Error),
}
