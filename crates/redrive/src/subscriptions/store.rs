//! Where the entries of the table are durable.

use std::sync::Arc;

use super::entry::Entry;
use super::holes::Loss;
use crate::engine::EngineError;

/// What reading a store brings, in its order.
#[derive(Clone, Debug)]
pub enum Loaded {
    Entry(Entry),
    /// Here entries are missing that were durable: of some keys an older one may have come before, which does not hold.
    Lost(Loss),
}

/// Gets every entry that another process wrote.
pub type Follower = Arc<dyn Fn(Entry) + Send + Sync>;

/// A log of keys and values of which the last value of each key counts. Used by one thread at a time.
pub trait SubscriptionStore: Send {
    /// Reads everything, oldest first. Says what was wrong with it.
    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<Vec<String>, EngineError>;

    /// Adds entries. Durable on return.
    fn append(&mut self, entries: &[Entry]) -> Result<(), EngineError>;

    /// For a store that several processes write: from now on hands over what they all write, in its order.
    fn follow(&mut self, follower: Follower) {
        let _ = follower;
    }

    /// How many entries it holds, outdated ones included. Zero where the store compacts it.
    fn len(&self) -> u64 {
        0
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces everything by these entries. Durable on return; a crash leaves all of the old or all of the new.
    fn replace(&mut self, entries: &mut dyn Iterator<Item = Entry>) -> Result<(), EngineError> {
        let _ = entries;
        Ok(())
    }
}
