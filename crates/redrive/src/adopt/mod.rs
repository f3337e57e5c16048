//! Dead letters of other frameworks: what their records say. Pure.
//!
//! - [`record`]: a record as it lies in a topic
//! - [`dialect`]: which framework wrote it; `frameworks`: what each of them writes, a table each
//! - [`understood`]: what a record says; `cause`: the error it died of, as text
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
