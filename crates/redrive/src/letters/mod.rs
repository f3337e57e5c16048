//! Dead letters from outside: a language to say which, and selections made with it.

pub mod filter;
mod filter_match;
mod filter_parse;

pub mod select;

pub use filter::{Filter, FilterError};
pub use select::{Page, SelectError, Selection};
