//! The files of redrive's folder of this name that threads meet in, as they are.

#[path = "../../../redrive/src/run/exchange.rs"]
pub(crate) mod exchange;
#[path = "../../../redrive/src/run/exclusive.rs"]
pub(crate) mod exclusive;
#[path = "../../../redrive/src/run/wake.rs"]
pub(crate) mod wake;
#[path = "../../../redrive/src/run/yielding.rs"]
mod yielding;
