//! A downstream that is down, overloaded or slow, and what protects it and the other messages.

pub(super) mod budgets;
pub(super) mod false_dead_letters;
pub(super) mod metastability;
pub(super) mod noisy_endpoint;
pub(super) mod retry_storm;
