//! Who may make a request: tokens, what a request shows of its caller, the judgement, and the guard that carries it out.

pub mod auth;
pub(crate) mod caller;
pub(crate) mod guard;
pub mod token;
pub(crate) mod wrong_tokens;
