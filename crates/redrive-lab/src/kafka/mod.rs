//! The workload in Kafka topics: produces orders and determines from outside how each ended.
//!
//! - [`broker`]: a private broker that can be killed and restarted
//! - [`topics`]: creates and removes topics, reads their offsets and a group's progress
//! - [`load`]: produces orders, at full speed or at a fixed rate; [`orders`]: parses them
//! - [`processor`]: a pipeline that processes them; [`applier`]: its handler; [`trace`]: the handler's attempts, in a
//!   file that survives its process
//! - [`outage`]: a downstream that is down for a while
//! - [`letters`]: reads a dead-letter topic; [`audit`]: checks that everything adds up

pub mod applier;
pub mod audit;
pub mod broker;
pub mod letters;
pub mod load;
pub mod orders;
pub mod outage;
pub mod processor;
pub mod topics;
pub mod trace;

/// Errors around a broker. None is expected, so a text is enough.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
