//! The workload in Kafka topics: orders go in, and what became of each is found out from outside.
//!
//! - [`broker`]: a broker of one's own, to be killed and started again
//! - [`topics`]: made, removed, how far they reach and how far a group has come
//! - [`load`]: orders into a topic, as fast as it takes them or at a fixed rate; [`orders`]: reading one back
//! - [`processor`]: a pipeline that works on them; [`applier`]: its handler; [`trace`]: what handlers did, in a file that
//!   survives their process
//! - [`outage`]: a downstream that is gone for a while
//! - [`letters`]: what lies in a dead-letter topic; [`audit`]: whether all of it adds up

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

/// What goes wrong around a broker; none of it is expected, so the text is all there is.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
