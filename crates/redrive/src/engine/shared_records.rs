//! What belongs to all processes that share a pipeline: records that each of them reads, of replay jobs and of actions.

use std::fmt;

use bytes::Bytes;

use super::error::EngineError;

/// Records that all processes of a pipeline share, by key. The latest one of a key counts.
pub trait SharedRecords: fmt::Debug + Send + Sync {
    /// Writes a record, or removes it. This process knows it when it returns, the others at about that time. Blocks.
    fn write(&self, key: &str, value: Option<&[u8]>) -> Result<(), EngineError>;

    /// Those whose keys begin so, in the order of their keys.
    fn records(&self, prefix: &str) -> Vec<(String, Bytes)>;

    /// Whether what was written before this process began is known.
    fn is_known(&self) -> bool;
}
