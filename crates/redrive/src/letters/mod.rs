//! Dead letters from outside: a language to say which, and selections made with it.

mod correlation;
pub mod decimal;
pub mod edit;
pub mod filter;
mod filter_match;
mod filter_parse;

pub(crate) mod groups;
pub mod redact;

pub mod select;

pub use correlation::correlation_id;
pub use filter::{Filter, FilterError};
pub use filter_match::status_of;
pub use redact::Redaction;
pub use select::{Page, SelectError, Selection};
