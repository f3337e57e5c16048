//! Messages whose receiver closed the connection: the evidence, their turns, and what is logged.

mod evidence;
mod notices;
mod suspects;
mod turns;

pub use suspects::ResetFigures;
pub(super) use suspects::{Attribution, Closed, ResetSuspects, SOLE_ENDPOINT, Turn};
