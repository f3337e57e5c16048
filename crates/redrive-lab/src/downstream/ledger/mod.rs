//! The applied ledger: which ids have had their effect. Applying an id a second time does nothing, as
//! `INSERT … ON CONFLICT DO NOTHING` in the transaction of the effect would.

mod applied;
mod file;
mod ids;
mod keep;
mod postgres;

pub use applied::{Applied, LedgerFault};
pub use keep::{Ledger, LedgerOptions, PAGE_MAX, Page, Url};
