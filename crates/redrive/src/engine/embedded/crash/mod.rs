//! What one process leaves for the next: which deliveries had started, which messages are suspects, and a reminder.

pub mod reminder;
pub mod started;
pub mod suspected;
