//! Opens one store per pipeline.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "embedded")]
use crate::engine::embedded::Embedded;
use crate::engine::{Engine, EngineError, Memory, StoreOptions};

/// An engine that provides the stores of all pipelines. This crate has [`Embedded`](crate::Embedded) and
/// [`MemoryStores`].
pub trait Stores: Send + Sync {
    /// Opens or creates the store of a pipeline.
    fn open(&self, pipeline: &str, options: StoreOptions) -> Result<Box<dyn Engine>, EngineError>;
}

/// Stores in memory, for tests and examples. Clones share the stores, so a run finds the messages of the previous
/// one.
///
/// ```
/// use redrive::{MemoryStores, Message, Pipeline, Redrive};
///
/// let redrive = Redrive::builder()
///     .engine(MemoryStores::new())
///     .pipeline(Pipeline::new("orders").handler_fn(|_: Message| async { Ok(()) }))
///     .build()?;
/// # Ok::<(), redrive::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStores {
    stores: Arc<Mutex<HashMap<String, Memory>>>,
}

impl MemoryStores {
    /// Creates it without any store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The opened store of a pipeline, for inspection.
    #[doc(hidden)]
    pub fn store(&self, pipeline: &str) -> Option<Memory> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).get(pipeline).cloned()
    }
}

impl Stores for MemoryStores {
    fn open(&self, pipeline: &str, options: StoreOptions) -> Result<Box<dyn Engine>, EngineError> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let store = stores.entry(pipeline.to_owned()).or_insert_with(|| Memory::new(options));
        Ok(Box::new(store.clone()))
    }
}

#[cfg(feature = "embedded")]
impl Stores for Embedded {
    fn open(&self, pipeline: &str, options: StoreOptions) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(self.store(pipeline, options)?))
    }
}

impl<S: Stores + ?Sized> Stores for Arc<S> {
    fn open(&self, pipeline: &str, options: StoreOptions) -> Result<Box<dyn Engine>, EngineError> {
        (**self).open(pipeline, options)
    }
}
