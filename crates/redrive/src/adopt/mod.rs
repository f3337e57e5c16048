//! Reads dead letters of other frameworks. Pure.
//!
//! - [`record`]: a record as stored in a topic
//! - [`dialect`]: which framework wrote it; `dialects`: detection and reading; `frameworks`: a table of headers for
//!   each
//! - [`understood`]: the contents of a record; `cause`: the error that the message died of, as text
//! - `own_topics`: which topics are a pipeline's own, so that nothing in them is foreign

pub mod record;
pub mod understood;

mod cause;
pub mod dialect;
mod dialects;
mod frameworks;
mod own_topics;

pub use dialect::Dialect;
pub use own_topics::is_own_topic;
pub use record::ForeignRecord;
pub use understood::{NotUnderstood, Origin, Understood};

#[cfg(test)]
mod tests;
