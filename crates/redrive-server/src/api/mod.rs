//! The requests under `/v1`: one file per noun, and the JSON they share.

pub mod actions;
pub(crate) mod change;
pub mod edit;
pub mod erase;
pub mod events;
pub mod groups;
pub mod keys;
pub mod letters;
pub mod messages;
pub mod pipelines;
mod replay_plan;
pub mod replays;
pub mod selection;
mod shown;
pub mod subscriptions;
pub mod view;
