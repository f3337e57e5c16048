//! Alerts without Prometheus: judged once a second from plain figures, sent at most once a period.
//!
//! Read in this order: a [`kind`] is what may be reported, [`facts`] are what is known of a pipeline at one moment, [`judge`]
//! finds what is wrong with them, [`rhythm`] says when that is reported and when it is over, [`watcher`] puts the two
//! together for one alert of the configuration, and a [`notice`] is what is sent. Nothing of these has a clock, a thread or
//! a connection: the caller brings them. [`groups`] asks a pipeline which groups of letters are new or back.

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
