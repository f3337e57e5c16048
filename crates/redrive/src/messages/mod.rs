//! Messages that are not terminal: listed by state and filter, found by id, made due and cancelled.

pub mod cursor;
pub mod find;
pub mod page;
pub mod steer;

pub use crate::run::steer::Steer;
pub use cursor::Cursor;
pub use find::message;
pub use page::{ListedMessage, MessagePage, MessageQuery};
pub use steer::{SteerError, Steering};
