//! Alerts without Prometheus: evaluated once a second from plain figures, sent at most once per period.
//!
//! Read in this order: [`kind`] has the kinds of alerts, [`facts`] the state of a pipeline at one moment, [`judge`]
//! finds problems in it, [`rhythm`] decides when they are reported and when they are over, [`watcher`] combines the two
//! for one configured alert, and [`notice`] is the message sent. None of them has a clock, a thread or a connection:
//! the caller provides them. [`groups`] asks a pipeline which groups of letters are new or back.

pub mod groups;

pub mod facts;
pub mod judge;
pub mod kind;
pub mod notice;
pub mod rhythm;
pub mod watcher;

pub use facts::{Facts, Pill};
pub use groups::{FoundGroups, GroupLookout};
pub use judge::{Finding, Limits};
pub use kind::{AlertKind, Severity};
pub use notice::{Notice, NoticeState};
pub use watcher::Watcher;
