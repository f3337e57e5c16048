//! Errors of changes to subscriptions.

use super::table::STORED_MAX;
use crate::engine::EngineError;

/// The longest id of a stored subscription.
pub(crate) const ID_BYTES_MAX: usize = 200;

#[derive(Clone, Debug, thiserror::Error)]
pub enum SubscriptionsError {
    #[error("no subscription `{0}` is known")]
    NotFound(String),
    #[error("`{0}` is neither flagged nor purged")]
    NotMarked(String),
    #[error(
        "the id of a subscription has 1 to {ID_BYTES_MAX} printable characters and is not an endpoint hash"
    )]
    Id,
    #[error("{0}")]
    Subscription(String),
    #[error("there are {STORED_MAX} stored subscriptions, and no room for more")]
    Full,
    #[error("purging is not stopped")]
    NotStopped,
    #[error("`{0}` is purged already")]
    AlreadyPurged(String),
    #[error(transparent)]
    Store(#[from] EngineError),
}
