//! Access control: tokens, the origin of a request, the decision, and the guard that applies it.

pub mod auth;
pub(crate) mod caller;
pub(crate) mod guard;
pub mod token;
pub(crate) mod wrong_tokens;
