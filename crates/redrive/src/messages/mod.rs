//! Pending messages: listed by state and filter, found by id, made due, cancelled, and taken back from a replay.

mod cursor;
mod find;
pub(crate) mod page;
mod recall;
mod steer;

#[doc(hidden)]
pub use crate::run::steer::Steer;
pub use cursor::{BadCursor, Cursor};
#[doc(hidden)]
pub use find::message;
pub use page::{ListedMessage, MessagePage, MessageQuery};
pub(crate) use recall::recall;
pub use steer::SteerError;
#[doc(hidden)]
pub use steer::Steering;
