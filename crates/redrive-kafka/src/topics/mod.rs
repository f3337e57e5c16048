//! The topics of a pipeline: their names, their requirements, and how they are created, scanned and trimmed.
//!
//! - [`Topics`]: every topic by name
//! - `plan`: the requirements of each; `describe`: what the cluster has; `survey`: the difference
//! - `prepare`: creates missing topics; `fault`: why a pipeline cannot start
//! - [`scan`]: reads topics from outside the group; [`trim`]: deletes finished records

mod names;

mod describe;
mod fault;
mod plan;
mod prepare;
mod survey;

pub mod scan;
pub mod trim;

pub(crate) use describe::{ANSWER_WITHIN, wait};
pub use fault::{EXTEND_TIERS, TopicsFault, Uneven, Wrong};
pub use names::{LaneKind, Role, Topics};
pub use plan::{Planned, TopicFacts, acl_commands};
pub use prepare::{prepare, prepare_ordered};
pub use survey::{Survey, survey};
