//! Records shared by all processes of a pipeline, for replay jobs and actions.

use std::fmt;

use bytes::Bytes;

use super::error::EngineError;

/// Key-value records shared by all processes of a pipeline. The latest record of a key counts.
pub trait SharedRecords: fmt::Debug + Send + Sync {
    /// Writes a record, or removes it. On return this process sees the change; the others see it soon after. Blocks.
    fn write(&self, key: &str, value: Option<&[u8]>) -> Result<(), EngineError>;

    /// The records whose keys begin with `prefix`, in key order.
    fn records(&self, prefix: &str) -> Vec<(String, Bytes)>;

    /// Whether everything written before this process started has been read.
    fn is_known(&self) -> bool;
}
