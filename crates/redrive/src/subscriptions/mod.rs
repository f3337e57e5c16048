//! Which endpoints of a push pipeline are alive: a durable table that keeps dead ones from being called again.
//!
//! - [`record`]: what is known of one endpoint; `records`: of all of them
//! - [`decide`]: what an answer changes about it; pure
//! - [`guard`]: stops purging when too many endpoints would go at once
//! - `seen`: how many there are, as a `sketch` per week; `recent`: which were called lately
//! - [`stored`]: subscriptions that messages name by id; `stored_index`: all of them
//! - `change`: what happened to an endpoint, for listeners; `unannounced`: purges that the owner's system has still to hear of
//! - [`entry`]: all of it as keys and values; `table`: in memory, bounded
//! - [`store`]: where entries are durable; [`file`]: a checked log on disk, of `lines`; `holes`: what is missing in it;
//!   [`check`]: verifies it
//! - `writer`: the thread that writes them in batches
//! - `subscriptions`: the handle that sinks and the API share; `counts`, `error`: what it answers

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
mod unannounced;

pub mod check;
pub mod file;
mod holes;
mod lines;
pub mod store;
mod writer;

mod counts;
mod error;
#[expect(clippy::module_inception, reason = "the handle is what the module is about")]
mod subscriptions;

pub use change::{Change, Changed};
pub use counts::Counts;
pub use decide::{Admission, Answer, Purge};
pub use error::SubscriptionsError;
pub use guard::Stopped;
pub use holes::Loss;
pub use lines::DamagedLine;
pub use record::{Cause, EndpointId, Record, SubscriptionState};
pub use store::{Loaded, SubscriptionStore};
pub use stored::{Registered, Stored};
pub use subscriptions::{Known, Reader, Subscriptions};
pub use table::Listed;
