//! The durable storage of the table's entries.

use std::sync::Arc;

use super::entry::Entry;
use super::holes::Loss;
use crate::engine::EngineError;

/// The parts of a store, in the order of reading.
#[derive(Clone, Debug)]
pub enum Loaded {
    Entry(Entry),
    /// Durable entries are missing here. Earlier entries of the affected keys may be outdated.
    Lost(Loss),
}

/// Called with every entry that another process wrote.
pub type Follower = Arc<dyn Fn(Entry) + Send + Sync>;

/// A log of keys and values; the last value of each key counts. Used by one thread at a time.
pub trait SubscriptionStore: Send {
    /// Reads all entries, oldest first. Returns the problems it found.
    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<Vec<String>, EngineError>;

    /// Adds entries. Durable on return.
    fn append(&mut self, entries: &[Entry]) -> Result<(), EngineError>;

    /// For a store that several processes write: from now on passes on all their entries, in the order of the store.
    fn follow(&mut self, follower: Follower) {
        let _ = follower;
    }

    /// The number of entries, including outdated ones; 0 if the store compacts itself.
    fn len(&self) -> u64 {
        0
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces all entries. Durable on return; a crash leaves either all of the old ones or all of the new ones.
    fn replace(&mut self, entries: &mut dyn Iterator<Item = Entry>) -> Result<(), EngineError> {
        let _ = entries;
        Ok(())
    }
}
