//! What one process leaves for the next: which deliveries had started, which messages are suspects, and a reminder.

pub(crate) mod reminder;
pub(crate) mod started;
pub(crate) mod suspected;
