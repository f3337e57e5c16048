//! The way into the journal: commands, the mailboxes they travel through, and the one writer.

pub mod command;
pub mod ingest;
pub mod mailbox;
pub mod writer;
