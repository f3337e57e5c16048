//! The idempotency ledger of Redrive for PostgreSQL.
//!
//! Redrive delivers at least once: after a crash, a lost answer or a replay, a handler sees a message again. A
//! handler that writes to PostgreSQL can make that harmless by recording the message id **in the transaction of
//! the effect**. Either both are committed or neither is, so the effect happens at most once per id.
//!
//! ```no_run
//! use redrive_postgres::ledger;
//!
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! ledger::migrate(client).await?;                          // at start, by every process
//!
//! let mut tx = client.transaction().await?;
//! if !ledger::once(&mut tx, "order-42").await? {
//!     return Ok(());                                       // applied before: nothing to do
//! }
//! tx.execute("UPDATE stock SET left = left - 1", &[]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! [`ledger`] holds everything a user calls; `schema.sql` is what [`ledger::migrate`] creates; [`LedgerError`] says
//! what went wrong and what to do. The crate knows nothing about queues, retries or the other Redrive crates.
//!
//! # What it does not cover
//!
//! An effect outside this database (an HTTP call, an e-mail, another store) cannot be part of the transaction.
//! For those, pass the message id on as an idempotency key and let the receiver check it.

#![warn(missing_docs, unreachable_pub)]

pub mod ledger;

mod error;

pub use error::{IdFault, LedgerError};

/// The code in the guide compiles, or the tests fail.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/idempotent-handlers.md")]
struct Guide;
