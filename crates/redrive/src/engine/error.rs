//! The errors of an engine.

#![warn(missing_docs)]

/// Why an engine could not carry out a request.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A write or a sync failed. Nothing can be trusted until the store is opened again.
    #[error("storage failed: {0}; stop, repair the disk and open the store again")]
    Storage(String),
    /// The store's directory cannot be used as it is. Nothing was stored.
    #[error("{problem}; {fix}")]
    Directory {
        /// What is wrong.
        problem: String,
        /// What to do about it.
        fix: &'static str,
    },
    /// Stored data cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// Another process has the store open.
    #[error("the store has an owner: {0}; stop it first, or use another directory")]
    Owned(String),
    /// The store was written by a version that this one cannot read.
    #[error("{0}")]
    Version(String),
    /// The store or cluster did not answer in time. Either nothing was changed, or it is unknown whether it was.
    #[error("{0}; try again")]
    Unavailable(String),
    /// Messages can be looked up by id only if ids are remembered.
    #[error("ids are not remembered here; set `dedup` to a window, and messages can be asked for by id")]
    NotRemembered,
}
