//! What can go wrong in the ledger, and what to do about it.

use tokio_postgres::error::SqlState;

/// A ledger call failed. Nothing was recorded; after a failed [`once`](crate::ledger::once) PostgreSQL refuses
/// further statements in that transaction, so drop it and let the message be retried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// There is no ledger where the connection looks for it.
    #[error(
        "the ledger is not set up: there is no table `applied` or `applied_meta` in the search path; \
         call redrive_postgres::ledger::migrate(&client) at start, with the same search_path as the handler"
    )]
    NotMigrated,

    /// A table of the same name belongs to somebody else.
    #[error(
        "the table `applied` is not a Redrive ledger ({found}); \
         rename it, or give the handler's connections a search_path with its own schema"
    )]
    NotALedger {
        /// What is different about it.
        found: String,
    },

    /// A newer version of this crate has set the ledger up.
    #[error("the ledger has version {found}, this build knows version {known}; upgrade redrive-postgres")]
    TooNew {
        /// The version of the ledger.
        found: i32,
        /// The version that this crate knows.
        known: i32,
    },

    /// The id cannot be a key of the ledger.
    #[error("the message id cannot be recorded: {0}")]
    Id(#[from] IdFault),

    /// Another transaction was in the way: a serialization failure, a deadlock or a lock timeout.
    #[error("another transaction is working on the same id; try again")]
    Busy(#[source] tokio_postgres::Error),

    /// Anything else that PostgreSQL or the connection reports.
    #[error("PostgreSQL did not carry out the ledger's statement")]
    Database(#[source] tokio_postgres::Error),
}

/// Why an id cannot be a key of the ledger. Found before anything is sent, so the transaction stays usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdFault {
    /// It has no characters.
    #[error("it is empty; give every message a stable id")]
    Empty,
    /// It is longer than an index entry may be.
    #[error("it has {bytes} bytes, at most {max} fit into the index")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest that fits.
        max: usize,
    },
    /// It contains a zero byte.
    #[error("it contains a zero byte, which PostgreSQL text cannot hold")]
    ZeroByte,
}

impl LedgerError {
    /// Whether retrying the same message can never help. Everything else is a state of the database: it passes,
    /// or somebody puts it right, and the message should wait for that.
    pub const fn is_permanent(&self) -> bool {
        matches!(self, Self::Id(_))
    }
}

/// Reads the refusal of one of the ledger's own statements. Not a `From`: `?` in a handler would turn a missing
/// table of the user's into [`LedgerError::NotMigrated`].
pub(crate) fn of_statement(error: tokio_postgres::Error) -> LedgerError {
    let Some(db) = error.as_db_error() else { return LedgerError::Database(error) };
    let code = db.code();
    if *code == SqlState::UNDEFINED_TABLE {
        LedgerError::NotMigrated
    } else if [
        SqlState::UNDEFINED_COLUMN,
        SqlState::DATATYPE_MISMATCH,
        SqlState::INVALID_COLUMN_REFERENCE, // no unique key on `id`
        SqlState::DUPLICATE_TABLE,
    ]
    .contains(code)
    {
        LedgerError::NotALedger { found: db.message().to_owned() }
    } else if [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ]
    .contains(code)
    {
        LedgerError::Busy(error)
    } else {
        LedgerError::Database(error)
    }
}
