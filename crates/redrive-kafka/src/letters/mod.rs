//! Dead letters on Kafka: a mirror of `T.DLQ` and `T.DLQ.state` in this process, and what people do to letters.
//!
//! - `handle`: [`KafkaLetters`], which the engine uses
//! - `state`: the state of a letter, a record of `T.DLQ.state`; `edit_record`: its message after an edit, beside it
//! - `entry`, `index`, `ids`: how the records of both topics add up, and which letters belong to a message; pure
//! - `content`, `file`: the letters' bytes, in a local file
//! - `cache`: index and file, shared between the engine and `mirror`, the thread that reads the topics; `view`: queries
//!   on it
//! - `transaction`: the one producer of changes; `writer`: begins, publishes, and waits until the changes are read
//! - `change`: replays, discards and undoes; `edit`: edits; `erase`: erases contents; `import`: letters from elsewhere
//! - `retention`, `trim`: deletion of resolved letters
//! - `other_readers`: which other groups read a topic

mod edit_record;
mod state;

mod entry;
mod ids;
mod index;

mod content;
mod file;

mod cache;
mod mirror;
mod view;

mod retention;
mod trim;

mod transaction;
mod writer;

mod change;
mod edit;
mod erase;
mod import;

mod handle;

mod other_readers;

pub use handle::KafkaLetters;
pub use index::LetterTotals;
pub use other_readers::other_groups;
pub use retention::Rules;
pub use trim::{LetterTrimmer, Trimmed};
