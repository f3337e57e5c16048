//! Dead letters on Kafka: a mirror of `T.DLQ` and `T.DLQ.state` in this process, and what a person does to letters.
//!
//! - `state`: what became of a letter, a line of `T.DLQ.state`
//! - `slot`, `index`: how the records of both topics add up; pure
//! - `content`, `file`: the letters' bytes, in a local file
//! - `shelf`: index and file, shared between the engine and `mirror`, the thread that reads the topics
//! - `desk`: [`Letters`], what the engine holds; `look` at letters, `change` them
//! - `transaction`: the one producer through which letters are changed
//! - `leaving`, `trim`: closed letters leave
//! - `groups`: who else reads a topic

mod state;

mod index;
mod slot;

mod content;
mod file;

mod mirror;
mod shelf;

mod leaving;
mod trim;

mod change;
mod desk;
mod look;
mod transaction;

mod groups;

pub use desk::Letters;
pub use groups::other_groups;
pub use index::LetterCounts;
pub use leaving::Rules;
pub use trim::{LetterTrimmer, Trimmed};
