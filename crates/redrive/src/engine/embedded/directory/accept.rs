//! Accepting a loss: gives up missing data on purpose, so that the store can be opened. Nothing else is changed.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::dir::{Owned, open_index};
use super::manifest::Holding;
use super::unusable::failed;
use crate::engine::embedded::disk::real::{Disk as _, RealDisk};
use crate::engine::embedded::journal::frame::HEADER_BYTES;
use crate::engine::embedded::journal::watermark::WatermarkState;
use crate::engine::embedded::state::book::Book;
use crate::engine::embedded::store::location::{StoreLocation, seed};
use crate::engine::embedded::store::open_logs::{IndexKnows, open_logs};
use crate::engine::embedded::tuning::Tuning;
use crate::engine::seam::{EngineError, StoreOptions};

/// The loss that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Set if the whole store was lost: what it held when it was last counted.
    pub store: Option<Holding>,
    /// The missing ranges of the journal.
    pub journal: Vec<Range<u64>>,
    /// The missing ranges of the letter log.
    pub letters: Vec<Range<u64>>,
    /// The maximum number of accepted messages that may be lost; not set if the whole store was lost.
    pub messages_max: u64,
    /// The maximum number of dead letters that may be lost.
    pub letters_max: u64,
    /// Whether the watermark was missing or damaged, so that more may be lost than is known.
    pub end_unknown: bool,
}

impl Loss {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        if let Some(holding) = self.store {
            parts.push(format!("the whole store: {holding}"));
        }
        if !self.journal.is_empty() {
            let at_most = self.messages_max;
            parts.push(format!(
                "{} bytes of the journal, with at most {at_most} messages",
                bytes(&self.journal)
            ));
        }
        if !self.letters.is_empty() {
            let at_most = self.letters_max;
            parts.push(format!(
                "{} bytes of the letter log, with at most {at_most} dead letters",
                bytes(&self.letters)
            ));
        }
        if self.end_unknown {
            parts.push("whatever stood behind the ends of the logs".to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

/// Gives up the missing parts of a pipeline's store. The directory must not be open elsewhere.
pub fn accept_loss(path: &Path, pipeline: &str) -> Result<Loss, EngineError> {
    let dir = Arc::new(Owned::open(path)?);
    let store = path.join(pipeline);
    let held = dir.manifest().holding(pipeline);
    if dir.manifest().check(pipeline).is_err() {
        dir.manifest().remove(pipeline)?;
        return Ok(Loss { store: Some(held.unwrap_or_default()), ..Loss::default() });
    }
    let journal = store.join("journal");
    if !journal.is_dir() {
        return Err(EngineError::Damaged(format!("{}: there is no store `{pipeline}`", path.display())));
    }
    let tuning = Tuning { accept_missing: true, ..Tuning::default() };
    let disk = RealDisk::new(&journal).map_err(|error| failed("opening", &journal, &error))?;
    let is_empty = disk.list().map_err(|error| failed("listing", &journal, &error))?.is_empty();
    if is_empty && held.is_some() {
        // The next start creates a new store.
        dir.manifest().remove(pipeline)?;
        fs::remove_dir_all(&store).map_err(|error| failed("removing", &store, &error))?;
        return Ok(Loss { store: held, ..Loss::default() });
    }
    let location =
        StoreLocation { disk, store_id: dir.id, options: StoreOptions::default(), tuning, owner: 0 };
    let mut logs = open_logs(&location, knowledge(&store, &dir.id, &tuning))?;
    let [journal, letters] = logs.reports.map(|report| report.missing);
    let found = logs.journal.note();
    let at_most = |missing: &[Range<u64>], known: u64| known.min(bytes(missing) / HEADER_BYTES as u64);
    let behind_the_end = journal.first().is_some_and(|first| first.end >= logs.published.journal.end);
    let unknown =
        if behind_the_end { logs.published.next_seq.saturating_sub(found) } else { logs.published.next_seq };
    let loss = Loss {
        store: None,
        messages_max: at_most(&journal, unknown),
        letters_max: at_most(&letters, logs.published.letters_moved),
        journal,
        letters,
        end_unknown: logs.end_unknown,
    };
    if loss.is_nothing() {
        return Ok(loss);
    }
    let published = WatermarkState {
        journal: logs.journal.extent(),
        letters: logs.letters.extent(),
        next_seq: logs.published.next_seq.max(found),
        doubtful_below: logs.published.next_seq.max(found),
        ..logs.published
    };
    let written = logs.watermark.note(published).and_then(|()| logs.watermark.sync());
    written.map_err(|error| failed("writing the watermark of", &store, &error))?;
    Ok(loss)
}

/// What the index knows of the journal, which may be more than the watermark. An unreadable index knows nothing.
fn knowledge(store: &Path, id: &[u8; 16], tuning: &Tuning) -> IndexKnows {
    let index = open_index(&store.join("index"), seed(id), tuning, false);
    let loaded = index.and_then(|index| Book::load(StoreOptions::default(), seed(id), index, 0));
    let known = loaded.ok().flatten();
    known.map_or_else(IndexKnows::default, |loaded| IndexKnows {
        position: loaded.book.position(),
        next_seq: loaded.book.next_seq(),
    })
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}
