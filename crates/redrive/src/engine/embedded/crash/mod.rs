//! What a process leaves for the next one: which deliveries had started, which messages are suspects, and reminders.

pub(crate) mod reminder;
pub(crate) mod started;
pub(crate) mod suspected;
