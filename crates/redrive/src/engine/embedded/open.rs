//! Opening a store: the journal says what is true, the index is brought forward to it or built anew.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redrive_core::Time;

use super::book::{Book, Loaded};
use super::clean::Cleaner;
use super::disk::Disk;
use super::keeper::{Keeper, Task};
use super::log::{Log, LogError, LogOptions, OpenReport};
use super::mailbox::Mailbox;
use super::reader::{Reader, Scanned};
use super::ready::Ready;
use super::record::kind;
use super::reminder::Reminder;
use super::shelf::{LineSlot, Shelf, ShelfError, Space};
use super::started::{Mark, Started};
use super::store::{Hands, Store};
use super::suspected::Suspected;
use super::tending::Tending;
use super::tuning::Tuning;
use super::writer::{LETTER_LOG, Writer};
use crate::engine::numbers::NumberMap;
use crate::engine::seam::{EngineError, StoreOptions};

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
}

/// Opens the tables; with `true`, throws away what is there first.
pub type OpenShelf<'a, S> = dyn Fn(bool) -> Result<Arc<S>, ShelfError> + 'a;

/// Opens a store whose writing is done by threads of its own.
pub fn open<D: Disk, S: Shelf>(
    place: &Place<D>,
    shelf: &OpenShelf<'_, S>,
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
    shelf: &OpenShelf<'_, S>,
) -> Result<(Store<D, S>, StoreReport), EngineError> {
    let Place { disk, store_id, options, tuning } = place;
    let seed = u64::from_le_bytes(store_id[..8].try_into().unwrap_or_default());
    let mut report = StoreReport::default();
    let (shelf_now, loaded) = load(place, seed, shelf, &mut report.rebuilt);

    let verify_from = loaded.as_ref().map_or(0, |loaded| loaded.book.position);
    let log = |prefix: &str, verify_from| {
        let accept_missing = tuning.accept_missing;
        let options = LogOptions::new(prefix, tuning.segment_bytes, *store_id);
        Log::open(disk.clone(), LogOptions { accept_missing, verify_from, ..options })
    };
    let (mut journal, journal_report) = log("j", verify_from)?;
    let (letters, letters_report) = log("l", 0)?;
    report.journal = journal_report;
    report.letters = letters_report;
    let (start, end) = (journal.start(), journal.end());

    // The index reflects only what was durable, so the journal has been longer than it is.
    if let Some(Loaded { book, .. }) =
        loaded.as_ref().filter(|loaded| loaded.book.position > end && !tuning.accept_missing)
    {
        return Err(LogError::MissingSegment { from: end, to: book.position }.into());
    }
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
        let shelf_now = shelf(true)?;
        let book = Book::new(*options, seed, Arc::clone(&shelf_now), tuning.near_max);
        (shelf_now, book, (start, None))
    };
    let anew = from.1.is_none();
    let cleaner = Cleaner {
        shelf: Arc::clone(&shelf_now),
        journal: journal.reader(),
        letters: letters.reader(),
        dedup: options.dedup,
        hash_seed: seed,
        closed_keep: tuning.closed_keep,
    };
    let keeper = Keeper { shelf: Arc::clone(&shelf_now), cleaner };
    if anew {
        book.position = start;
        fold_letters(&mut book, &letters.reader())?;
    }
    let (frames, first_seq) = fold_journal(&mut book, &journal.reader(), &keeper, (start, anew), tuning)?;
    report.brought_forward = frames;
    if anew && frames > 0 && report.rebuilt.is_none() {
        report.rebuilt = Some("there was none".to_owned());
    }
    // What the last header said may be of a torn batch, or of no batch at all in a segment that has just begun.
    journal.set_note(book.next_seq);

    let (started, marks) = Started::open(disk).map_err(|error| EngineError::Storage(error.to_string()))?;
    report.started = still_open(&book, marks)?;
    let failed = |error: std::io::Error| EngineError::Storage(error.to_string());
    let (mut suspects, suspected) = Suspected::open(disk).map_err(failed)?;
    suspects.adopt(&still_open(&book, suspected)?, &report.started).map_err(failed)?;
    report.suspects = suspects.numbers().collect();

    let expected = from.1.or(first_seq).unwrap_or(book.next_seq);
    let ready = Ready::new(journal.reader(), from.0, end, Some(expected));
    let tending = Tending::after(if anew { 0 } else { verify_from });
    let mut store = Store {
        options: *options,
        tuning: *tuning,
        ready,
        journal: journal.reader(),
        letter_log: letters.reader(),
        started,
        suspects,
        reminder: Reminder::open(disk).map_err(failed)?,
        suspects_ending: Vec::new(),
        commands: Arc::new(Mailbox::default()),
        tasks: Arc::new(Mailbox::default()),
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
        tending,
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
    Ok((store, report))
}

/// The tables and the book in them, if they can be read.
fn load<D: Disk, S: Shelf>(
    place: &Place<D>,
    seed: u64,
    shelf: &OpenShelf<'_, S>,
    rebuilt: &mut Option<String>,
) -> (Result<Arc<S>, ShelfError>, Option<Loaded<S>>) {
    let opened = shelf(false);
    let book = opened.as_ref().map_err(ShelfError::clone).and_then(|shelf| {
        let book = Book::load(place.options, seed, Arc::clone(shelf), place.tuning.near_max)?;
        if book.is_none() && !shelf.range(Space::Meta, &[], 1)?.is_empty() {
            return Err(ShelfError("its meta entry is missing".into()));
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

fn fold_letters<D: Disk, S: Shelf>(book: &mut Book<S>, letters: &Reader<D>) -> Result<(), EngineError> {
    let Some((start, _)) = letters.segments().first().copied() else { return Ok(()) };
    let mut failed = None;
    letters.scan(start, letters.end(), |scanned| match scanned {
        Scanned::Frame(frame) => match book.fold_letter(&frame, frame.position | LETTER_LOG) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        },
        Scanned::Batch(_) | Scanned::Rot(_) => ControlFlow::Continue(()),
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Folds the journal from where the book stands. Returns how many frames that were and, if everything was built anew,
/// the number of the first message the journal still holds.
fn fold_journal<D: Disk, S: Shelf>(
    book: &mut Book<S>,
    journal: &Reader<D>,
    keeper: &Keeper<D, S>,
    (start, anew): (u64, bool),
    tuning: &Tuning,
) -> Result<(u64, Option<u64>), EngineError> {
    let mut frames = 0;
    let mut failed: Option<EngineError> = None;
    // A batch header says which number comes after its batch; what lies before the journal's first message is over.
    let mut begun = !anew;
    let mut first_seq = None;
    // That number, and where the batch it belongs to ends. A batch that was torn counts messages that are not there.
    let mut note: Option<(u64, u64)> = None;
    let begin = |book: &mut Book<S>, seq: u64| {
        book.departed = crate::engine::completion::CompletionSet::starting_at(seq);
        book.next_seq = book.next_seq.max(seq);
        Some(seq)
    };
    let end = journal.scan(book.position, journal.end(), |scanned| {
        match scanned {
            Scanned::Batch(header) => {
                if let Some((seq, _)) = note.filter(|(_, end)| !begun && *end <= header.position) {
                    first_seq = begin(book, seq);
                    begun = true;
                }
                note = Some((header.note, header.end()));
            }
            Scanned::Frame(frame) => {
                frames += 1;
                if frame.kind == kind::ACCEPTED && !begun {
                    first_seq = begin(book, frame.tag);
                    begun = true;
                }
                if let Err(error) = book.fold(&frame, &mut |_| {}) {
                    failed = Some(error.into());
                    return ControlFlow::Break(());
                }
                if book.changes() > tuning.checkpoint_changes {
                    let resume = (start, first_seq.unwrap_or(0));
                    let frozen = book.freeze(resume);
                    if let Some(super::command::Note::Failed(error)) =
                        keeper.work(Task::Apply { frozen, persist: false })
                    {
                        failed = Some(EngineError::Storage(error));
                        return ControlFlow::Break(());
                    }
                    drop(book.thaw());
                }
            }
            Scanned::Rot(rot) => {
                book.damaged = true;
                if let Some(header) = rot.header.filter(|header| header.kind == kind::ACCEPTED) {
                    if !begun {
                        first_seq = begin(book, header.tag);
                        begun = true;
                    }
                    book.next_seq = book.next_seq.max(header.tag + 1);
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some((seq, _)) = note.filter(|(_, batch_end)| *batch_end <= end) {
        if !begun {
            first_seq = begin(book, seq);
        }
        book.next_seq = book.next_seq.max(seq);
    }
    book.position = book.position.max(end);
    book.damaged = false;
    Ok((frames, first_seq))
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
