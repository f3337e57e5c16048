//! Dead letters on Kafka: a mirror of `T.DLQ` and `T.DLQ.state` in this process, and what a person does to letters.
//!
//! - [`state`]: what became of a letter, a line of `T.DLQ.state`
//! - [`slot`], [`index`]: how the records of both topics add up; pure
//! - [`content`], [`file`]: the letters' bytes, in a local file

pub mod state;

pub mod index;
pub mod slot;

pub mod content;
pub mod file;
