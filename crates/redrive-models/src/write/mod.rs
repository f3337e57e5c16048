//! The mailbox between threads and the writer of the embedded engine, as it is.

#[path = "../../../redrive/src/engine/embedded/write/mailbox.rs"]
pub(crate) mod mailbox;
