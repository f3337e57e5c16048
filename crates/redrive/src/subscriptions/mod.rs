//! The state of the endpoints of a push pipeline: a durable table that keeps dead endpoints from being called again.
//!
//! - [`record`]: the record of one endpoint; `records`: all of them
//! - [`decide`]: how an answer changes it; pure
//! - [`guard`]: stops purging when too many endpoints would be purged at once
//! - `seen`: estimates how many are active, with one `sketch` per week; `recent`: endpoints that were called lately
//! - [`stored`]: subscriptions that messages name by id; `stored_index`: all of them
//! - `change`: changes of endpoints, for listeners; `unannounced`: purges that still have to be announced to the
//!   owner's system
//! - [`entry`]: the table as keys and values; `table`: in memory, bounded
//! - [`store`]: where entries are durable; [`file`]: a checked log on disk, of `lines`; `holes`: lines that are lost
//!   in it; [`check`]: verifies it
//! - `writer`: the thread that writes entries in batches
//! - `subscriptions`: the handle that sinks and the API share; `counts`, `error`: its results

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
