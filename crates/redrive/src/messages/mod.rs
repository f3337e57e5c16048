//! Pending messages: listed by state and filter, found by id, made due, cancelled, taken back from a replay, and counted as held.

mod cursor;
mod find;
mod held;
pub(crate) mod page;
mod recall;
mod steer;

#[doc(hidden)]
pub use crate::run::steer::Steer;
pub use cursor::{BadCursor, Cursor};
#[doc(hidden)]
pub use find::message;
pub(crate) use held::held;
pub use page::{ListedMessage, MessagePage, MessageQuery};
pub(crate) use recall::recall;
pub use steer::SteerError;
#[doc(hidden)]
pub use steer::Steering;
