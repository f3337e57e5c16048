//! The memory engine: the simplest implementation of the seam, for tests and the simulation.

mod engine;
mod inner;
mod lines;
mod lookup;

pub use engine::Memory;
