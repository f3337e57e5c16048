//! The seam: an engine hands out deliveries and settles batches of verdicts.
//!
//! One thread owns an engine and calls it; only [`Ingest`] handles are shared. Key order, the delay of retries and
//! letter states are implemented below the seam, because each engine stores waiting messages in its own way. What an
//! outcome means is decided above it.
//!
//! [`Ingest`]: super::ingest::Ingest

#![warn(missing_docs)]

mod counts;
mod deliver;
mod delivery;
mod keep_letters;
mod options;
mod query;

pub use super::error::EngineError;
pub use super::position::SourcePosition;
pub use counts::{Counts, Oldest, Settling};
pub use deliver::{Deliver, OwnShare, ReminderKind};
pub use delivery::{
    Announced, Claimed, Delivery, Event, OnBehalf, Receipt, Settlement, Suspect, TakeGate, Ticket, Verdict,
    share,
};
pub use keep_letters::KeepLetters;
pub use options::{AfterDead, DeliveryOrder, Execution, LastEnd, StoreOptions};
pub use query::Query;

/// An engine: it delivers, keeps letters and answers questions. Implemented for every type with all three traits.
pub trait Engine: Deliver + KeepLetters + Query {}

impl<T: Deliver + KeepLetters + Query> Engine for T {}
