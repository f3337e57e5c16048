//! The consumer group as a whole: [`control`] for all processes, its [`members`], and `standing`: how this one stands in it.

pub mod control;
pub mod members;
pub(crate) mod standing;
