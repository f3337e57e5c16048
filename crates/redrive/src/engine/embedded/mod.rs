//! The embedded engine: the journal is the truth, the index is a cache.
//!
//! Read in this order: a [`frame`] is the unit of the [`log`], the [`record`]s say what frames mean, the [`book`] is what
//! follows from them, the [`writer`] makes them durable, the [`store`] joins both behind the seam.

pub mod disk;
mod disk_read;
pub mod disk_sim;

mod batch;
pub mod frame;
pub mod log;
mod log_error;
mod log_open;
mod log_options;
pub mod reader;
mod scan;
mod segment;
mod segments;
pub mod watermark;

pub mod book;
mod fold;
mod fold_letters;
pub mod healing;
pub mod lines;
mod live;
mod ready;
mod rebuild;
pub mod record;
pub mod runs;
pub mod shelf;

mod clean;
mod command;
mod keeper;
mod mailbox;
pub mod reminder;
mod scrub;
pub mod started;
pub mod suspected;
mod writer;

mod absorb;
pub mod accept;
pub mod dir;
mod find;
mod format;
pub mod inspect;
mod inspect_letters;
mod inspect_log;
pub mod inspection;
mod key_line;
mod lock;
pub mod manifest;
mod oldest;
pub mod open;
mod open_logs;
mod pending;
mod serve;
pub mod store;
mod store_ingest;
mod take;
mod tend;
mod tending;
pub mod tuning;
mod unusable;

pub use dir::Embedded;
pub use open::StoreReport;
pub use tuning::Tuning;
