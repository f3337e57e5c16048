//! The applied ledger: the ids whose effect has happened. Applying an id again does nothing, like `INSERT … ON
//! CONFLICT DO NOTHING` in the transaction of the effect.

mod applied;
mod file;
mod ids;
mod keep;
mod postgres;

pub use applied::{Applied, LedgerFault};
pub use keep::{Ledger, LedgerOptions, PAGE_MAX, Page, Url};
