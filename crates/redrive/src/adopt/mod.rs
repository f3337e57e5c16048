//! Dead letters of other frameworks: what their records say. Pure.
//!
//! - [`record`]: a record as it lies in a topic
//! - [`dialect`]: which framework wrote it; `frameworks`: what each of them writes, a table each
//! - [`understood`]: what a record says; `cause`: the error it died of, as text

pub mod record;
pub mod understood;

mod cause;
pub mod dialect;
mod dialects;
mod frameworks;

pub use dialect::Dialect;
pub use record::ForeignRecord;
pub use understood::{NotUnderstood, Origin, Understood};

#[cfg(test)]
mod tests;
