//! The engine of one pipeline: the parts together.

mod absorb;
mod blocked;
mod condition;
mod cut;
mod engine;
mod flow;
mod late;
mod meeting;
mod open;
mod pending;
mod reserve;
mod serve;
mod settle;
mod take;
mod tend;
mod unwritten;

pub use engine::KafkaEngine;
