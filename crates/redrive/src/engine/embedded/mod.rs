//! The embedded engine: the journal is the truth, the index is a cache.
//!
//! Read in this order: a frame is the unit of the [`journal`], the records say what frames mean, the [`state`] is what
//! follows from them, the writer in [`mod@write`] makes them durable, the [`store`] joins both behind the seam. [`directory`]
//! holds a store per pipeline, [`index`] the tables beside the journal, [`maintenance`] everything slow.

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
