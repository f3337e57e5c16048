//! Dead letters on a real broker: parked, listed, discarded, replayed once.

#[path = "../broker/mod.rs"]
mod broker;

mod changes;
mod edits;
mod erasing;
mod fixture;
mod imports;
mod kills;
mod leaving;
mod measures;
mod replays;
mod rivals;
mod sizes;
mod tools;
