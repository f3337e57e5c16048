//! Messages that are not terminal: listed by state and filter, found by id, made due and cancelled.

mod cursor;
mod find;
pub(crate) mod page;
mod steer;

#[doc(hidden)]
pub use crate::run::steer::Steer;
pub use cursor::{BadCursor, Cursor};
#[doc(hidden)]
pub use find::message;
pub use page::{ListedMessage, MessagePage, MessageQuery};
pub use steer::SteerError;
#[doc(hidden)]
pub use steer::Steering;
