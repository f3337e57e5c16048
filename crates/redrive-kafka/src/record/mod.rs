//! Converts records to messages, and messages to records.
//!
//! A record of the source becomes a [`Message`](redrive_core::Message). A copy in a tier, in `T.replay` or in `T.DLQ`
//! has the same key, value and headers, followed, from `x-orig-topic` on, by everything Redrive knows about it as
//! headers in plain text. Headers before that mark are the producer's, whatever their names; so none of them is lost,
//! and none of ours is ever there twice.

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
