//! Which endpoints of a push pipeline are alive: a durable table that keeps dead ones from being called again.
//!
//! - [`record`]: what is known of one endpoint; `records`: of all of them
//! - [`decide`]: what an answer changes about it; pure
//! - [`guard`]: stops purging when too many endpoints would go at once
//! - `seen`: how many there are, as a `sketch` per week; `recent`: which were called lately
//! - [`stored`]: subscriptions that messages name by id; `stored_index`: all of them
//! - `change`: what happened to an endpoint, for listeners
//! - [`entry`]: all of it as keys and values; `table`: in memory, bounded
//! - [`store`]: where entries are durable; [`file`]: a checked log on disk
//! - `writer`: the thread that writes them in batches
//! - `subscriptions`: the handle that sinks and the API share

pub mod record;
mod records;

pub mod decide;
pub mod guard;
mod recent;
mod seen;
mod sketch;

pub mod stored;
mod stored_index;

mod change;
pub mod entry;
mod table;

pub mod file;
pub mod store;
mod writer;

#[expect(clippy::module_inception, reason = "the handle is what the module is about")]
mod subscriptions;

pub use change::{Change, Changed};
pub use decide::{Admission, Answer, Purge};
pub use guard::Stopped;
pub use record::{Cause, EndpointId, Record, Standing};
pub use store::SubscriptionStore;
pub use stored::{Registered, Stored};
pub use subscriptions::{Counts, Reader, Subscriptions, SubscriptionsError};
pub use table::Listed;
