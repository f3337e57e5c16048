//! The applied ledger: which ids have had their effect. Applying an id a second time does nothing, as
//! `INSERT … ON CONFLICT DO NOTHING` in the transaction of the effect would.

mod file;
mod ids;
mod keep;
mod postgres;

pub use keep::{Applied, Ledger, LedgerFault, LedgerOptions, PAGE_MAX, Page, Url};
