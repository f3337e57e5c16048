//! The embedded engine: the journal is the source of truth, the index is a cache.
//!
//! Read in this order: the [`journal`] stores frames, its records say what they mean, the [`state`] is the result of
//! folding them, the writer in [`mod@write`] makes them durable, and the [`store`] puts these together behind the seam.
//! [`directory`]
//! holds one store per pipeline, [`index`] the tables beside the journal, [`maintenance`] all slow work.

pub mod tuning;

pub mod disk;
pub mod journal;

pub mod index;
pub mod state;

mod crash;
pub mod maintenance;
pub mod write;

pub mod directory;
pub mod inspect;
pub mod store;

pub use directory::dir::Embedded;
pub use directory::{accept, dir};
pub use disk::sim as disk_sim;
pub use journal::{frame, record};
pub use store::open::{self, StoreReport};
pub use tuning::Tuning;
