//! Opening a store: the journal says what is true, the index is brought forward to it or built anew.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redrive_core::Time;

use super::book::{Book, Loaded};
use super::clean::Cleaner;
use super::disk::Disk;
use super::healing::Healing;
use super::keeper::Keeper;
use super::log::OpenReport;
use super::mailbox::Mailbox;
use super::open_logs::{IndexKnows, Logs, open_logs};
use super::ready::Ready;
use super::rebuild::{Folding, Rebuilder, fold_journal, fold_letters};
use super::reminder::Reminder;
use super::shelf::{LineSlot, Shelf, ShelfError, Space};
use super::started::{LastRun, Mark, Started};
use super::store::{Hands, Store};
use super::suspected::Suspected;
use super::tending::Tending;
use super::tuning::Tuning;
use super::watermark::Vouched;
use super::writer::Writer;
use crate::engine::completion::CompletionSet;
use crate::engine::numbers::NumberMap;
use crate::engine::seam::{EngineError, Execution, LastEnd, StoreOptions};

/// Tells receipts of one opening from those of another.
static OPENINGS: AtomicU32 = AtomicU32::new(0);

/// What was found when a store was opened. Nothing is skipped silently: it is here.
#[derive(Debug, Clone, Default)]
pub struct StoreReport {
    pub journal: OpenReport,
    pub letters: OpenReport,
    /// Why the index was built anew, if it was.
    pub rebuilt: Option<String>,
    /// Frames the index had to be brought forward by.
    pub brought_forward: u64,
    /// Deliveries that were running when the last process ended without a clean stop. They are reported again until
    /// something is taken.
    pub started: Vec<Mark>,
    /// What else was wrong and is right again.
    pub notes: Vec<String>,
    /// Messages that are suspected of having ended a process: these, and those of earlier runs that had no turn yet.
    pub suspects: Vec<u64>,
}

/// Where a store lives and what it is.
#[derive(Debug, Clone)]
pub struct Place<D> {
    pub disk: D,
    pub store_id: [u8; 16],
    pub options: StoreOptions,
    pub tuning: Tuning,
    /// Tells this opening from any other, in whatever process.
    pub owner: u64,
}

/// What keys and ids of a store are hashed with, so that nobody outside can choose ones that collide.
pub fn seed(store_id: &[u8; 16]) -> u64 {
    u64::from_le_bytes(store_id[..8].try_into().unwrap_or_default())
}

/// Opens the tables; with `true`, throws away what is there first.
pub type OpenShelf<S> = Arc<dyn Fn(bool) -> Result<Arc<S>, ShelfError> + Send + Sync>;

/// Opens a store whose writing is done by threads of its own.
pub fn open<D: Disk, S: Shelf>(
    place: &Place<D>,
    shelf: &OpenShelf<S>,
) -> Result<(Store<D, S>, StoreReport), EngineError> {
    let (mut store, report) = open_by_hand(place, shelf)?;
    let Hands::Own(writer, keeper) = std::mem::replace(&mut store.hands, Hands::Gone) else {
        return Ok((store, report));
    };
    store.spawn(*writer, keeper).map_err(|error| EngineError::Storage(error.to_string()))?;
    Ok((store, report))
}

/// Opens a store that writes when it is polled: every step is the caller's, which is what the simulation needs.
pub fn open_by_hand<D: Disk, S: Shelf>(
    place: &Place<D>,
    shelf: &OpenShelf<S>,
) -> Result<(Store<D, S>, StoreReport), EngineError> {
    let Place { disk, store_id, options, tuning, .. } = place;
    let seed = seed(store_id);
    let mut report = StoreReport::default();
    let (shelf_now, loaded) = load(place, seed, shelf, &mut report.rebuilt);

    // The index reflects only what was durable: the journal was at least as long.
    let known = loaded.as_ref().map(|Loaded { book, .. }| (book.position, book.next_seq)).unwrap_or_default();
    let (verify_from, next_seq) = known;
    let logs = open_logs(place, IndexKnows { position: verify_from, next_seq })?;
    let Logs { mut journal, letters, mut watermark, reports, vouched, end_unknown } = logs;
    [report.journal, report.letters] = reports;
    let (start, end) = (journal.start(), journal.end());

    let usable = loaded.filter(|Loaded { book, ready_at, .. }| {
        let fits = book.position <= end && book.position >= start && *ready_at >= start;
        if !fits {
            report.rebuilt = Some(format!("it is at {}, the journal is {start} to {end}", book.position));
        }
        fits
    });
    let (shelf_now, mut book, from) = if let Some(Loaded { book, ready_at, ready_seq }) = usable {
        (shelf_now?, book, (ready_at, Some(ready_seq)))
    } else {
        let shelf_now = Arc::new(Healing::new(shelf(true)?));
        let book = Book::new(*options, seed, Arc::clone(&shelf_now), tuning.near_max);
        (shelf_now, book, (start, None))
    };
    let anew = from.1.is_none();
    let (options, tuning, open) = (*options, *tuning, Arc::clone(shelf));
    let (reader, letter_reader) = (journal.reader(), letters.reader());
    let rebuilder = Rebuilder { journal: reader, letters: letter_reader, options, tuning, seed, open };
    shelf_now.repair_with(book.position, Box::new(move |to| rebuilder.rebuild(to)));
    let cleaner = Cleaner {
        shelf: Arc::clone(&shelf_now),
        journal: journal.reader(),
        letters: letters.reader(),
        dedup: options.dedup,
        hash_seed: seed,
        closed_keep: tuning.closed_keep,
    };
    let keeper = Keeper { shelf: Arc::clone(&shelf_now), cleaner };
    let mut doubtful =
        end_unknown || !report.journal.missing.is_empty() || !report.letters.missing.is_empty();
    if anew {
        book.position = start;
        if doubtful && start >= vouched.journal.end {
            // Nothing is left of the journal: whatever waited in it is gone, and its numbers are not used again.
            book.departed = CompletionSet::starting_at(vouched.next_seq);
        }
        doubtful |= fold_letters(&mut book, &letters.reader())?;
    }
    let folded = fold_journal(&mut book, &journal.reader(), (start, end), anew, &tuning)?;
    let Folding { frames, first_seq, met_rot } = folded;
    book.next_seq = book.next_seq.max(vouched.next_seq);
    report.brought_forward = frames;
    let doubtful_below = if doubtful || met_rot { book.next_seq } else { vouched.doubtful_below };
    let vouched = Vouched {
        journal: journal.extent(),
        letters: letters.extent(),
        next_seq: book.next_seq,
        doubtful_below,
        owner: place.owner,
        ..vouched
    };
    let vouching = watermark.note(vouched).and_then(|()| watermark.sync());
    vouching.map_err(|error| EngineError::Storage(format!("writing the watermark: {error}")))?;
    if anew && frames > 0 && report.rebuilt.is_none() {
        report.rebuilt = Some("there was none".to_owned());
    }
    // What the last header said may be of a torn batch, or of no batch at all in a segment that has just begun.
    journal.set_note(book.next_seq);

    let failed = |error: std::io::Error| EngineError::Storage(error.to_string());
    let (mut started, last_run) = Started::open(disk).map_err(failed)?;
    let (mut suspects, suspected) = Suspected::open(disk, options.last_end).map_err(failed)?;
    if options.execution == Execution::Elsewhere {
        // Marks can be there of a handler that ran in the process.
        started.clear().and_then(|()| suspects.forget()).map_err(failed)?;
    } else {
        let mut last_run = LastRun {
            running: still_open(&book, last_run.running)?,
            returned: still_open(&book, last_run.returned)?,
        };
        let from_outside = options.last_end == LastEnd::FromOutside;
        if from_outside {
            last_run.running.clear();
        }
        report.started.clone_from(&last_run.running);
        suspects.adopt(&still_open(&book, suspected)?, &last_run).map_err(failed)?;
        if from_outside {
            // Whoever starts next may not know how this run had ended.
            started.clear().map_err(failed)?;
        }
        report.suspects = suspects.numbers().collect();
    }

    let expected = from.1.or(first_seq).unwrap_or(book.next_seq);
    let ready = Ready::new(journal.reader(), from.0, end, Some(expected));
    let tending = Tending::after(if anew { 0 } else { verify_from });
    let mut store = Store {
        options,
        tuning,
        ready,
        journal: journal.reader(),
        letter_log: letters.reader(),
        started,
        suspects,
        reminder: Reminder::open(disk).map_err(failed)?,
        suspects_ending: Vec::new(),
        commands: Arc::new(Mailbox::default()),
        tasks: Arc::new(Mailbox::default()),
        upkeep: Arc::new(Mailbox::default()),
        notes: Arc::new(Mailbox::default()),
        hands: Hands::Gone,
        wake: Arc::default(),
        in_flight: NumberMap::default(),
        running: NumberMap::default(),
        passed: NumberMap::default(),
        passed_keys: NumberMap::default(),
        released: VecDeque::new(),
        released_keys: HashSet::new(),
        returned: VecDeque::new(),
        claimed: BTreeSet::new(),
        unlooked: BTreeSet::new(),
        hand_outs: 0,
        gated: false,
        odd_to_due: false,
        given: 0,
        durable: 0,
        unreported: VecDeque::new(),
        epoch: OPENINGS.fetch_add(1, Ordering::Relaxed),
        now: Time::ZERO,
        failed: None,
        doubtful_below,
        scrubbed: Arc::default(),
        scrub_stop: Arc::new(Mailbox::default()),
        tending,
        census: None,
        kept: None,
        book,
    };
    let recent =
        store.book.ids.pending().map(|(id, slot)| (String::from_utf8_lossy(id).into(), *slot)).collect();
    let writer = Writer {
        disk: disk.clone(),
        journal,
        letters,
        shelf: shelf_now,
        dedup: options.dedup,
        recent,
        next_seq: store.book.next_seq,
        reserve_bytes: tuning.reserve_bytes,
        watermark,
    };
    store.hands = Hands::Own(Box::new(writer), keeper);
    let in_line = !store.book.lines.range(&(0, 0), 1, &store.book.table(Space::Lines))?.is_empty();
    if in_line && options.ordering == crate::engine::seam::Ordering::None {
        // Whoever waits behind a key would wait for ever, for nobody would move the line on.
        return Err(EngineError::Version(
            "messages wait behind their keys, but the pipeline is opened with ordering = none; \
             run it with ordering = key until they are done"
                .into(),
        ));
    }
    if store.book.blocked > 0 {
        store.release_all()?;
    }
    if store.book.shelf.rebuilds() > 0 {
        report.rebuilt = Some("it was damaged, which showed when it was brought forward".to_owned());
    }
    Ok((store, report))
}

type Opened<S> = Result<Arc<Healing<S>>, ShelfError>;

/// The tables and the book in them, if they can be read.
fn load<D: Disk, S: Shelf>(
    place: &Place<D>,
    seed: u64,
    shelf: &OpenShelf<S>,
    rebuilt: &mut Option<String>,
) -> (Opened<S>, Option<Loaded<Healing<S>>>) {
    let opened = shelf(false).map(|tables| Arc::new(Healing::new(tables)));
    let book = opened.as_ref().map_err(ShelfError::clone).and_then(|shelf| {
        let book = Book::load(place.options, seed, Arc::clone(shelf), place.tuning.near_max)?;
        if book.is_none() && !shelf.range(Space::Meta, &[], None, 1)?.is_empty() {
            return Err(ShelfError::Damaged("its meta entry is missing".into()));
        }
        Ok(book)
    });
    match book {
        Ok(book) => (opened, book),
        Err(error) => {
            *rebuilt = Some(error.to_string());
            (opened, None)
        }
    }
}

/// The marks whose messages are not settled.
fn still_open<S: Shelf>(book: &Book<S>, marks: Vec<Mark>) -> Result<Vec<Mark>, EngineError> {
    let mut open = Vec::new();
    for mark in marks {
        let waits = match (mark.due, mark.line) {
            (_, Some(hash)) => {
                let slot = book.lines.get(&(hash, mark.seq), &book.table(Space::Lines))?;
                matches!(slot, Some(LineSlot::Blocked(_)))
            }
            (None, None) => !book.departed.contains(mark.seq) && mark.seq < book.next_seq,
            (Some(due), None) => book.delay.get(&(due, mark.seq), &book.table(Space::Delay))?.is_some(),
        };
        if waits {
            open.push(mark);
        }
    }
    Ok(open)
}
