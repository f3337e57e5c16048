//! Opening a store: the journal is the source of truth, the index is brought up to date or rebuilt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redrive_core::Time;

use super::contents::Contents;
use super::crash_marks::CrashMarks;
use super::in_flight::InFlight;
use super::key_gate::KeyGate;
use super::letters::erase::Erasing;
use super::location::{OpenIndex, StoreLocation, seed};
use super::maintain::Maintenance;
use super::open_logs::{IndexKnows, Logs, open_logs};
use super::store::Store;
use super::tickets::Tickets;
use super::waiting::Waiting;
use super::workers::Workers;
use crate::engine::embedded::crash::reminder::Reminders;
use crate::engine::embedded::crash::started::{LastRun, Mark, Started};
use crate::engine::embedded::crash::suspected::Suspected;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::healing::Healing;
use crate::engine::embedded::index::rebuild::{Folding, Rebuilder, fold_journal, fold_letters};
use crate::engine::embedded::index::tables::{IndexError, IndexTables, LineSlot, Space};
use crate::engine::embedded::journal::log::OpenReport;
use crate::engine::embedded::journal::watermark::WatermarkState;
use crate::engine::embedded::journal::wipe::wipe_closed;
use crate::engine::embedded::maintenance::clean::Cleaner;
use crate::engine::embedded::maintenance::erasures::{Erasures, FoundErasures};
use crate::engine::embedded::maintenance::maintainer::Maintainer;
use crate::engine::embedded::state::book::{Book, Loaded};
use crate::engine::embedded::state::ready::Ready;

use crate::engine::embedded::write::writer::Writer;
use crate::engine::letter::LetterState;
use crate::engine::seam::{EngineError, Execution, LastEnd};

/// Distinguishes the receipts of different openings.
static OPENINGS: AtomicU32 = AtomicU32::new(0);

/// What was found when a store was opened. Nothing is skipped silently: it is listed here.
#[derive(Debug, Clone, Default)]
pub struct StoreReport {
    pub journal: OpenReport,
    pub letters: OpenReport,
    /// Why the index was rebuilt, if it was.
    pub rebuilt: Option<String>,
    /// How many frames were read to bring the index up to date.
    pub brought_forward: u64,
    /// Deliveries that were running when the last process ended uncleanly. They are reported again until messages are
    /// taken.
    pub started: Vec<Mark>,
    /// Deliveries that had come back without a durable verdict. They are delivered again too.
    pub returned: Vec<Mark>,
    /// Other problems that were found and repaired.
    pub notes: Vec<String>,
    /// Messages suspected of having ended a process: the running ones, and suspects of earlier runs that have not run
    /// since.
    pub suspects: Vec<u64>,
}

/// Opens a store that writes in its own threads.
pub fn open<D: Disk, S: IndexTables>(
    location: &StoreLocation<D>,
    open_index: &OpenIndex<S>,
) -> Result<(Store<D, S>, StoreReport), EngineError> {
    let (mut store, report) = open_by_hand(location, open_index)?;
    store.spawn().map_err(|error| EngineError::Storage(error.to_string()))?;
    Ok((store, report))
}

/// Opens a store that writes when it is polled: the caller performs every step, as the simulation needs.
pub fn open_by_hand<D: Disk, S: IndexTables>(
    location: &StoreLocation<D>,
    open_index: &OpenIndex<S>,
) -> Result<(Store<D, S>, StoreReport), EngineError> {
    let StoreLocation { disk, store_id, options, tuning, .. } = location;
    let seed = seed(store_id);
    let mut report = StoreReport::default();
    let failed = |error: std::io::Error| EngineError::Storage(error.to_string());
    let (erasures, found) = Erasures::open(disk).map_err(failed)?;
    if !found.confirmed.is_empty() {
        for (prefix, end) in [("j", found.journal_end), ("l", found.letter_log_end)] {
            wipe_closed(disk, prefix, *store_id, &found.confirmed, end).map_err(failed)?;
        }
    }
    let (tables, loaded) = load(location, seed, open_index, &mut report.rebuilt);

    // The index reflects only durable data, so the journal was at least as long.
    let known =
        loaded.as_ref().map(|Loaded { book, .. }| (book.position(), book.next_seq())).unwrap_or_default();
    let (verify_from, next_seq) = known;
    let logs = open_logs(location, IndexKnows { position: verify_from, next_seq })?;
    let Logs { mut journal, letters, mut watermark, reports, published, end_unknown } = logs;
    [report.journal, report.letters] = reports;
    let (start, end) = (journal.start(), journal.end());

    let usable = loaded.filter(|Loaded { book, ready_at, .. }| {
        let fits = book.position() <= end && book.position() >= start && *ready_at >= start;
        if !fits {
            report.rebuilt = Some(format!("it is at {}, the journal is {start} to {end}", book.position()));
        }
        fits
    });
    let (tables, mut book, from) = if let Some(Loaded { book, ready_at, ready_seq }) = usable {
        (tables?, book, (ready_at, Some(ready_seq)))
    } else {
        let tables = Arc::new(Healing::new(open_index(true)?));
        let book = Book::new(options.clone(), seed, Arc::clone(&tables), tuning.near_max);
        (tables, book, (start, None))
    };
    let anew = from.1.is_none();
    let (options, tuning, open) = (options.clone(), *tuning, Arc::clone(open_index));
    let (reader, letter_reader) = (journal.reader(), letters.reader());
    let rebuilder =
        Rebuilder { journal: reader, letters: letter_reader, options: options.clone(), tuning, seed, open };
    tables.repair_with(book.position(), Box::new(move |to| rebuilder.rebuild(to)));
    let cleaner = Cleaner {
        tables: Arc::clone(&tables),
        journal: journal.reader(),
        letters: letters.reader(),
        dedup: options.dedup,
        hash_seed: seed,
        resolved_retention: tuning.resolved_retention,
    };
    let maintainer = Maintainer { tables: Arc::clone(&tables), cleaner };
    let mut doubtful =
        end_unknown || !report.journal.missing.is_empty() || !report.letters.missing.is_empty();
    if anew {
        book.begin_at(start);
        if doubtful && start >= published.journal.end {
            // Nothing is left of the journal: the messages that waited in it are lost, and their numbers are not used
            // again.
            book.begin_with(published.next_seq);
        }
        doubtful |= fold_letters(&mut book, &letters.reader())?;
    }
    let folded = fold_journal(&mut book, &journal.reader(), (start, end), anew, &tuning)?;
    let Folding { frames, first_seq, met_rot } = folded;
    book.reserve_numbers(published.next_seq);
    report.brought_forward = frames;
    let doubtful_below = if doubtful || met_rot { book.next_seq() } else { published.doubtful_below };
    let published = WatermarkState {
        journal: journal.extent(),
        letters: letters.extent(),
        next_seq: book.next_seq(),
        doubtful_below,
        owner: location.owner,
        ..published
    };
    let written = watermark.note(published).and_then(|()| watermark.sync());
    written.map_err(|error| EngineError::Storage(format!("writing the watermark: {error}")))?;
    if anew && frames > 0 && report.rebuilt.is_none() {
        report.rebuilt = Some("there was none".to_owned());
    }
    // The number in the last header may be from a torn batch, or from no batch at all in a segment that was just
    // begun.
    journal.set_note(book.next_seq());

    let (mut started, last_run) = Started::open(disk).map_err(failed)?;
    let (mut suspects, suspected) = Suspected::open(disk, options.last_end).map_err(failed)?;
    if options.execution == Execution::Elsewhere {
        // There may be marks from when the handler ran in the process.
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
        report.returned.clone_from(&last_run.returned);
        suspects.adopt(&still_open(&book, suspected)?, &last_run).map_err(failed)?;
        if from_outside {
            // The next process may not know how this run ended.
            started.clear().map_err(failed)?;
        }
        report.suspects = suspects.numbers().collect();
    }

    let expected = from.1.or(first_seq).unwrap_or(book.next_seq());
    let ready = Ready::new(journal.reader(), from.0, end, Some(expected));
    let maintenance = Maintenance::after(if anew { 0 } else { verify_from });
    let unwiped = erased_since(&book, &found)?;
    let erasing = Erasing::resume(erasures, found.recorded, &unwiped).map_err(failed)?;
    let contents = Contents::new(journal.reader(), letters.reader());
    let recent = book.ids().pending().map(|(id, slot)| (String::from_utf8_lossy(id).into(), *slot)).collect();
    let writer = Writer {
        disk: disk.clone(),
        journal,
        letters,
        tables,
        dedup: options.dedup,
        recent,
        next_seq: book.next_seq(),
        reserve_bytes: tuning.reserve_bytes,
        watermark,
    };
    let in_flight = InFlight::new(OPENINGS.fetch_add(1, Ordering::Relaxed));
    let mut waiting = Waiting { book, ready, contents, in_flight, keys: KeyGate::default() };
    let book = &waiting.book;
    let in_line = !book.lines().range(&(0, 0), 1, &book.table(Space::Lines))?.is_empty();
    if in_line && options.ordering == crate::engine::seam::DeliveryOrder::None {
        // Messages behind it would wait forever, because nothing would advance the line.
        return Err(EngineError::Version(
            "messages wait behind their keys, but the pipeline is opened with ordering = none; \
             run it with ordering = key until they are done"
                .into(),
        ));
    }
    if book.blocked() > 0 {
        waiting.release_all()?;
    }
    if waiting.book.tables().rebuilds() > 0 {
        report.rebuilt = Some("it was damaged, which showed when it was brought forward".to_owned());
    }
    let store = Store {
        marks: CrashMarks::new(options.execution, started, suspects),
        letter_options: options.letter_options.as_deref().map(|text| text.as_bytes().to_vec().into()),
        options,
        tuning,
        waiting,
        reminders: Reminders::open(disk).map_err(failed)?,
        workers: Workers::by_hand(writer, maintainer),
        tickets: Tickets::default(),
        maintenance,
        erasing,
        gated: false,
        odd_to_due: false,
        now: Time::ZERO,
        failed: None,
        doubtful_below,
        scrubbed: Arc::default(),
        kept: None,
    };
    Ok((store, report))
}

type Opened<S> = Result<Arc<Healing<S>>, IndexError>;

/// The tables and the book in them, if they are readable.
fn load<D: Disk, S: IndexTables>(
    location: &StoreLocation<D>,
    seed: u64,
    open_index: &OpenIndex<S>,
    rebuilt: &mut Option<String>,
) -> (Opened<S>, Option<Loaded<Healing<S>>>) {
    let opened = open_index(false).map(|tables| Arc::new(Healing::new(tables)));
    let book = opened.as_ref().map_err(IndexError::clone).and_then(|tables| {
        let book = Book::load(location.options.clone(), seed, Arc::clone(tables), location.tuning.near_max)?;
        if book.is_none() && !tables.range(Space::Meta, &[], None, 1)?.is_empty() {
            return Err(IndexError::Damaged("its meta entry is missing".into()));
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

/// Letters that got their tombstones in an earlier run and are not overwritten everywhere yet.
fn erased_since<S: IndexTables>(book: &Book<S>, found: &FoundErasures) -> Result<Vec<u64>, EngineError> {
    let mut erased = Vec::new();
    for seq in found.recorded.iter().filter(|seq| !found.confirmed.contains(seq)) {
        if book.letter(*seq)?.is_some_and(|slot| slot.state == LetterState::Erased) {
            erased.push(*seq);
        }
    }
    Ok(erased)
}

/// The marks whose messages are not settled.
fn still_open<S: IndexTables>(book: &Book<S>, marks: Vec<Mark>) -> Result<Vec<Mark>, EngineError> {
    let mut open = Vec::new();
    for mark in marks {
        let waits = match (mark.due, mark.line) {
            (_, Some(hash)) => {
                let slot = book.lines().get(&(hash, mark.seq), &book.table(Space::Lines))?;
                matches!(slot, Some(LineSlot::Blocked(_)))
            }
            (None, None) => !book.departed().contains(mark.seq) && mark.seq < book.next_seq(),
            (Some(due), None) => book.delay().get(&(due, mark.seq), &book.table(Space::Delay))?.is_some(),
        };
        if waits {
            open.push(mark);
        }
    }
    Ok(open)
}
