//! What happens after an attempt: the outcome, the decision, the delay, and what is remembered of the message.

pub mod class;
pub mod decide;
pub mod decision;
pub mod jitter;
pub mod meta;
pub mod reason;
pub mod schedule;
pub mod views;
