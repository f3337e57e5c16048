//! The memory engine: the plainest form of the seam, for tests and the simulation.

mod engine;
mod inner;
mod letters;
mod pending;

pub use engine::Memory;
