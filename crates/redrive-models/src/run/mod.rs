//! The files of redrive's folder `run` in which threads meet, unchanged.

#[path = "../../../redrive/src/run/exchange.rs"]
pub(crate) mod exchange;
#[path = "../../../redrive/src/run/exclusive.rs"]
pub(crate) mod exclusive;
#[path = "../../../redrive/src/run/wake.rs"]
pub(crate) mod wake;
#[path = "../../../redrive/src/run/yielding.rs"]
mod yielding;
