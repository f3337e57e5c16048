//! How old the oldest message and the oldest open letter are, from what is at hand.

use redrive_core::{Message, Time};

use super::store::Store;
use super::take::Content;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::IndexTables;
use crate::engine::seam::{EngineError, Oldest};

/// Waiting messages that are looked at: those that come due next.
const DELAYED_LOOKED_AT: usize = 4;

impl<D: Disk, S: IndexTables> Store<D, S> {
    /// The first ready message, the few that come due next, and the first open letter. A handful of reads.
    pub(crate) fn find_oldest(&mut self) -> Result<Oldest, EngineError> {
        let ready = self.ready.first(self.book.departed(), self.book.next_seq())?;
        let ready = ready.and_then(|wire| Message::from_wire(wire.clone()).ok());
        let ready = ready.map(|message| message.created());
        let returned = self.returned.front().map(|delivery| delivery.meta.created);
        let delayed = self.book.delay().first(DELAYED_LOOKED_AT).filter_map(|(_, pointer)| {
            // Damage is found and reported when its turn comes; here it only means not to know.
            let frame = self.journal.read(pointer.at, u64::from(pointer.len)).ok()?;
            Some(Content::of(&frame)?.meta.created)
        });
        let waiting = ready.into_iter().chain(returned).chain(delayed);
        let pending = waiting.filter(|created| *created > Time::ZERO).min();
        Ok(Oldest { pending, letter: self.book.oldest_letter()? })
    }
}
