//! Opens both logs of a store and checks them against the watermark and the index.

use std::ops::ControlFlow;

use super::location::StoreLocation;
use crate::engine::embedded::directory::unusable::HOW_TO_GO_ON;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::journal::frame::HEADER_BYTES;
use crate::engine::embedded::journal::log::{Log, LogError, LogOptions, OpenReport};
use crate::engine::embedded::journal::reader::{Reader, Scanned};
use crate::engine::embedded::journal::record::kind;
use crate::engine::embedded::journal::recover::newest_version;
use crate::engine::embedded::journal::segment::WATERMARK_SINCE;
use crate::engine::embedded::journal::watermark::{Extent, Found, NAME, Watermark, WatermarkState};
use crate::engine::seam::EngineError;

/// What the index knows about the journal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IndexKnows {
    pub(crate) position: u64,
    pub(crate) next_seq: u64,
}

#[derive(Debug)]
pub(crate) struct Logs<D: Disk> {
    pub(crate) journal: Log<D>,
    pub(crate) letters: Log<D>,
    pub(crate) watermark: Watermark<D::File>,
    pub(crate) reports: [OpenReport; 2],
    /// The state of the watermark before this opening.
    pub(crate) published: WatermarkState,
    /// Whether a required watermark was missing, and that was accepted.
    pub(crate) end_unknown: bool,
}

/// Opens the logs. Fails if data is missing, unless that is accepted; then the reports list it.
pub(crate) fn open_logs<D: Disk>(
    location: &StoreLocation<D>,
    index: IndexKnows,
) -> Result<Logs<D>, EngineError> {
    let StoreLocation { disk, store_id, tuning, .. } = location;
    let options = |prefix: &str| LogOptions {
        accept_missing: tuning.accept_missing,
        ..LogOptions::new(prefix, tuning.segment_bytes, *store_id)
    };
    let marking = |error: std::io::Error| EngineError::from(LogError::io("using", NAME)(error));
    let newest = newest_version(disk, &options("j"))?;
    let found = Watermark::open(disk, store_id).map_err(marking)?;
    let watermark = match (found, newest) {
        (Found::Whole(watermark), _) => Some(watermark),
        // A new store, or one that lost power while it was being created.
        (Found::Nothing | Found::Damaged, None) => {
            Some(Watermark::create(disk, store_id, WatermarkState::default()).map_err(marking)?)
        }
        // From before there were watermarks.
        (Found::Nothing, Some(version)) if version < WATERMARK_SINCE => None,
        (Found::Nothing | Found::Damaged, _) if tuning.accept_missing => None,
        (Found::Nothing, _) => return Err(unknown_end("is missing")),
        (Found::Damaged, _) => return Err(unknown_end("is damaged")),
    };
    let end_unknown = watermark.is_none() && newest.is_some_and(|version| version >= WATERMARK_SINCE);
    let published = watermark.as_ref().map(Watermark::state).unwrap_or_default();
    let journal_end = published.journal.end.max(index.position);
    let journal_known = Extent { end: journal_end, ..published.journal };
    let next_seq = published.next_seq.max(index.next_seq);

    let journal = LogOptions { known: journal_known, verify_from: index.position, ..options("j") };
    let (mut journal, journal_report) =
        Log::open(disk.clone(), journal).map_err(|error| refused("journal", "messages", next_seq, error))?;
    let letters = LogOptions { known: published.letters, ..options("l") };
    let (letters, letters_report) = Log::open(disk.clone(), letters)
        .map_err(|error| refused("letter log", "dead letters", published.letters_moved, error))?;

    let watermark = if let Some(watermark) = watermark {
        watermark
    } else {
        // From the next segment on, a missing watermark means that it was lost.
        journal.begin_segment()?;
        let letters_moved = letters_in(&letters.reader())?;
        let (journal, letters) = (journal.extent(), letters.extent());
        let published = WatermarkState { journal, letters, letters_moved, ..WatermarkState::default() };
        Watermark::create(disk, store_id, published).map_err(marking)?
    };
    let published = WatermarkState { next_seq, ..watermark.state() };
    Ok(Logs {
        journal,
        letters,
        watermark,
        reports: [journal_report, letters_report],
        published,
        end_unknown,
    })
}

fn unknown_end(how: &str) -> EngineError {
    EngineError::Damaged(format!(
        "the file {NAME}, which records where the logs end, {how}: nothing proves that their ends are all there; \
         {HOW_TO_GO_ON}"
    ))
}

fn refused(log: &str, what: &str, known: u64, error: LogError) -> EngineError {
    let LogError::MissingSegment { from, to, .. } = error else { return error.into() };
    // A frame is at least as long as its header.
    let at_most = known.min((to - from) / HEADER_BYTES as u64);
    EngineError::Damaged(format!(
        "the {log} is not whole: {error}, with at most {at_most} {what}; {HOW_TO_GO_ON}"
    ))
}

fn letters_in<D: Disk>(letters: &Reader<D>) -> Result<u64, EngineError> {
    let mut count = 0;
    letters.scan(letters.start(), letters.end(), |scanned| {
        count += u64::from(matches!(scanned, Scanned::Frame(frame) if frame.kind == kind::DEAD));
        ControlFlow::Continue(())
    })?;
    Ok(count)
}
