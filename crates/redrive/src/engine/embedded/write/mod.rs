//! How data gets into the journal: commands, mailboxes, and the single writer.

pub mod command;
pub mod ingest;
pub mod mailbox;
pub mod writer;
