//! The consumer group as a whole.
//!
//! - [`control`]: state that all processes share; [`members`]: who is in the group
//! - [`subscriptions`]: the table of a push pipeline, shared by all members
//! - `status`: state of this process in the group; `watcher`: the thread that queries the cluster

pub mod control;
pub mod members;
pub(crate) mod status;
pub mod subscriptions;
pub(crate) mod watcher;
