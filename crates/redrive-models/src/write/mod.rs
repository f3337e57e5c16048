//! The mailbox between threads and the writer of the embedded engine, unchanged.

#[path = "../../../redrive/src/engine/embedded/write/mailbox.rs"]
pub(crate) mod mailbox;
