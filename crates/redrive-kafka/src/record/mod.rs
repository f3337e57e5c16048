//! Records as messages, and messages as records.
//!
//! A record of the source becomes a [`Message`](redrive_core::Message). A copy in a tier, in `T.replay` or in `T.DLQ`
//! carries the same key, value and headers, and behind them, from `x-orig-topic` on, everything Redrive knows of it as
//! headers in plain text. What stands before that mark is the producer's, whatever its names are; so nothing of it is
//! lost, and nothing of ours is ever there twice.

mod copy;
pub(crate) mod group;
pub(crate) mod meta;
mod origin;
mod position;
mod replaces;
mod waiting;

pub mod names;

mod attempts;
mod our_headers;
mod pick;
mod read;
mod write;

pub use copy::{CopyRecord, LetterMarks, Read, Unreadable};
pub use origin::Origin;
pub use our_headers::all as all_headers;
pub use read::RecordReader;
pub use replaces::{Replaces, topic_hash};
pub use waiting::{Carried, Polled, WaitingMessage, number_of, origin_of, take_in};
pub use write::headers;
