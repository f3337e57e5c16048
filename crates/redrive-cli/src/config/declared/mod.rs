//! Every setting, declared once: its name, the form of its value, its default or an example, and a sentence.
//!
//! The keys that are read, their bounds and words, the flags, the default file, its reference page and the schema for
//! editors derive from this. Tables of sinks are declared with each sink.

mod alert;
mod engine;
mod form;
mod pipeline;
mod server;
mod table;

pub use form::Form;
pub(super) use form::words;
pub use table::{Header, Setting, SettingTable, Shown};

/// All tables except those of sinks, in the order of the default file. Sinks go between the last two.
pub(super) const BEFORE_SINKS: &[&[SettingTable]] = &[engine::TABLES, server::TABLES, pipeline::TABLES];
pub(super) const AFTER_SINKS: &[&[SettingTable]] = &[alert::TABLES];
