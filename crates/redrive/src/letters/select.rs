//! Selections of letters: paged for viewing, frozen for changing. Never loads all letters into memory at once.

use std::collections::{BTreeSet, HashMap};

use redrive_core::Time;
use redrive_core::text::number::grouped;

use super::filter::Filter;
use super::groups;
use crate::engine::position::PartitionOffset;
use crate::engine::{Letter, LetterScan, LetterState};
use crate::handle::{HandleError, PipelineHandle};

/// Letters scanned in one call of [`Selection::page`]; the cursor continues from there.
pub const SCAN_MAX: usize = 10_000;
/// The largest page.
pub const PAGE_MAX: usize = 1_000;
/// Approximate bytes of one page: it ends with the batch that exceeds this.
pub const PAGE_BYTES: usize = 16 << 20;
/// Maximum letters in one frozen selection.
pub const SELECTION_MAX: usize = 10_000_000;
/// Letters that are read from the engine at once, so that reading does not hold up deliveries.
const READ_MAX: usize = 64;
/// Letters that the engine scans at once to find them.
const LOOK_MAX: usize = 1_024;

/// Selects letters by criteria that must all hold. To change letters, at least one criterion is required.
///
/// ```
/// use redrive::letters::{Filter, SelectError, Selection};
/// use redrive::{LetterState, PipelineHandle};
///
/// async fn unavailable(orders: &PipelineHandle) -> Result<usize, SelectError> {
///     let filter = Filter::parse("status:503").ok();
///     let selection = Selection { filter, ..Selection::all(LetterState::Open) };
///     let page = selection.page(orders, None, 100).await?;
///     Ok(page.letters.len())
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Letters that match this filter.
    pub filter: Option<Filter>,
    /// Letters in this state.
    pub state: Option<LetterState>,
    /// Letters that died at this time or later.
    pub since: Option<Time>,
    /// Letter ids (`orders/17`, `17`) or message ids; see [`resolve`].
    pub ids: Option<Vec<String>>,
    /// All letters, selected explicitly.
    pub all: bool,
}

/// A page of a selection, in the order of letter ids.
#[derive(Clone, Debug)]
pub struct Page {
    /// The letters.
    pub letters: Vec<Letter>,
    /// Where to continue; `None` at the end.
    pub next: Option<u64>,
    /// Letters that were scanned.
    pub scanned: u64,
}

/// Why letters could not be selected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// Nothing says which letters are meant.
    #[error("nothing was selected; give a filter, ids or a time, or select all letters explicitly")]
    Empty,
    /// There is no such letter.
    #[error("there is no letter `{id}` in pipeline `{pipeline}`")]
    NotFound {
        /// The pipeline.
        pipeline: String,
        /// The id that was asked for.
        id: String,
    },
    /// It is the number of one letter and the message id of another.
    #[error(
        "`{id}` names two letters: `{by_number}`, and `{by_message}`, which is the letter of message `{id}`"
    )]
    Ambiguous {
        /// The id that was asked for.
        id: String,
        /// The letter with this number.
        by_number: String,
        /// The letter of the message with this id.
        by_message: String,
    },
    /// More letters match than can be handled at once.
    #[error(
        "more than {} letters are selected; narrow the selection down, for example by since",
        grouped(SELECTION_MAX as u64)
    )]
    TooMany,
    /// The pipeline did not answer.
    #[error(transparent)]
    Handle(#[from] HandleError),
}

impl Selection {
    /// All letters in a state.
    pub fn all(state: LetterState) -> Self {
        Self { state: Some(state), all: true, ..Self::default() }
    }

    /// Whether it has any criterion besides the state.
    pub fn says_something(&self) -> bool {
        self.all || self.filter.is_some() || self.since.is_some() || self.ids.is_some()
    }

    /// Whether a letter matches, apart from the ids.
    pub fn matches(&self, letter: &Letter, now: Time) -> bool {
        self.is_in_reach(letter) && self.filter.as_ref().is_none_or(|filter| filter.matches(letter, now))
    }

    /// Whether the state and the time of death match.
    fn is_in_reach(&self, letter: &Letter) -> bool {
        self.state.is_none_or(|state| state == letter.state)
            && self.since.is_none_or(|since| letter.dead_at >= since)
    }

    /// Whether the letter matches with one of the messages that edits have replaced, apart from the ids.
    async fn matches_before(
        &self,
        handle: &PipelineHandle,
        letter: &Letter,
        now: Time,
    ) -> Result<bool, SelectError> {
        let Some(filter) = self.filter.as_ref().filter(|_| self.is_in_reach(letter)) else {
            return Ok(false);
        };
        for edit in &letter.edits {
            let before = handle.message_before(letter.id, edit).await?;
            if before.is_some_and(|before| filter.matches_as(letter, &before, now)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Up to `limit` letters after the id `after`. A call scans a bounded number of letters and bytes, so a page may
    /// be short or empty although there are more: `next` says where to continue.
    pub async fn page(
        &self,
        handle: &PipelineHandle,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, SelectError> {
        self.page_with(handle, after, limit, |letter| letter).await
    }

    /// Like [`Self::page`], but drops the payloads of letters after filtering.
    pub async fn page_without_payloads(
        &self,
        handle: &PipelineHandle,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, SelectError> {
        self.page_with(handle, after, limit, Letter::without_payload).await
    }

    async fn page_with(
        &self,
        handle: &PipelineHandle,
        after: Option<u64>,
        limit: usize,
        keep: impl Fn(Letter) -> Letter,
    ) -> Result<Page, SelectError> {
        let ids = self.resolved(handle).await?;
        let keep = |letter| {
            let letter = keep(letter);
            let size = letter.size();
            (letter, size)
        };
        let part = self.part(handle, ids.as_deref(), after, limit, Versions::Current, keep).await?;
        Ok(Page { letters: part.kept, next: part.next, scanned: part.scanned })
    }

    /// The named letters, if any were named, or those that the index has for the ids of the filter.
    async fn resolved(&self, handle: &PipelineHandle) -> Result<Option<Vec<u64>>, SelectError> {
        if let Some(ids) = &self.ids {
            return resolve(handle, ids).await.map(Some);
        }
        let Some(ids) = self.filter.as_ref().and_then(Filter::ids) else { return Ok(None) };
        let mut numbers = BTreeSet::new();
        for id in ids {
            let Some(found) = handle.letters_of(id).await? else { return Ok(None) };
            numbers.extend(found);
        }
        Ok(Some(numbers.into_iter().collect()))
    }

    /// Scans letters batch by batch, and keeps the result of `keep` for each match, with its size in bytes.
    async fn part<T>(
        &self,
        handle: &PipelineHandle,
        ids: Option<&[u64]>,
        after: Option<u64>,
        limit: usize,
        versions: Versions,
        mut keep: impl FnMut(Letter) -> (T, usize),
    ) -> Result<SelectionPart<T>, SelectError> {
        let (now, limit) = (handle.now(), limit.clamp(1, PAGE_MAX));
        let mut part = SelectionPart { kept: Vec::new(), next: after, scanned: 0 };
        let mut bytes = 0;
        // Open letters can be found by their group without scanning others.
        let group =
            self.filter.as_ref().filter(|_| self.state == Some(LetterState::Open)).and_then(Filter::group);
        while part.kept.len() < limit && (part.scanned as usize) < SCAN_MAX && bytes < PAGE_BYTES {
            // No more than still fit on the page.
            let wanted = READ_MAX.min(limit - part.kept.len());
            let scan = match (ids, group) {
                (Some(ids), _) => next_of(handle, ids, part.next).await?,
                (None, Some(group)) => groups::letters(handle, group, part.next, wanted).await?,
                (None, None) => handle.scan_letters(self.state, part.next, wanted, LOOK_MAX).await?,
            };
            part.scanned += scan.scanned;
            part.next = scan.next;
            for letter in scan.letters {
                let is_meant = self.matches(&letter, now)
                    || (versions == Versions::Kept && self.matches_before(handle, &letter, now).await?);
                if !is_meant {
                    continue;
                }
                let (kept, size) = keep(letter);
                bytes += size;
                part.kept.push(kept);
            }
            if part.next.is_none() {
                break;
            }
        }
        Ok(part)
    }

    /// The ids of all matching letters, in order. Letters that die later are not included.
    pub async fn freeze(&self, handle: &PipelineHandle) -> Result<Vec<u64>, SelectError> {
        let mut ids = Vec::new();
        self.each(handle, |letter| ids.push(letter.id)).await?;
        Ok(ids)
    }

    /// Calls `look` for all matching letters, in order.
    pub async fn each(&self, handle: &PipelineHandle, look: impl FnMut(&Letter)) -> Result<(), SelectError> {
        self.each_by(handle, Versions::Current, look).await
    }

    /// Like [`Self::each`], including letters that match with a message that an edit has replaced and that is still
    /// kept.
    #[doc(hidden)]
    pub async fn each_ever(
        &self,
        handle: &PipelineHandle,
        look: impl FnMut(&Letter),
    ) -> Result<(), SelectError> {
        self.each_by(handle, Versions::Kept, look).await
    }

    async fn each_by(
        &self,
        handle: &PipelineHandle,
        versions: Versions,
        mut look: impl FnMut(&Letter),
    ) -> Result<(), SelectError> {
        if !self.says_something() {
            return Err(SelectError::Empty);
        }
        let mut seen = 0;
        // Resolve once, not per batch.
        let ids = self.resolved(handle).await?;
        let mut after = None;
        loop {
            let keep = |letter: Letter| (look(&letter), 0);
            let part = self.part(handle, ids.as_deref(), after, PAGE_MAX, versions, keep).await?;
            seen += part.kept.len();
            if seen > SELECTION_MAX {
                return Err(SelectError::TooMany);
            }
            after = part.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

/// Which messages of a letter may match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Versions {
    /// The current one.
    Current,
    /// Also those that its edits have replaced.
    Kept,
}

/// The result of scanning a part of a selection; see [`Page`].
struct SelectionPart<T> {
    kept: Vec<T>,
    next: Option<u64>,
    scanned: u64,
}

/// The first named letter after `after`, if there is one.
async fn next_of(
    handle: &PipelineHandle,
    ids: &[u64],
    after: Option<u64>,
) -> Result<LetterScan, SelectError> {
    let at = after.map_or(0, |after| ids.partition_point(|id| *id <= after));
    let Some(id) = ids.get(at) else { return Ok(LetterScan::default()) };
    let letters = handle.letter(*id).await?.into_iter().collect();
    let next = (at + 1 < ids.len()).then_some(*id);
    Ok(LetterScan { letters, next, scanned: 1 })
}

/// The numbers of letters named by users, sorted and without duplicates.
///
/// `orders/17` is always the letter with that number. Any other text is the id of a message, or else the number of a
/// letter. If it is both, for two different letters, it is ambiguous and refused.
pub async fn resolve(handle: &PipelineHandle, ids: &[String]) -> Result<Vec<u64>, SelectError> {
    if ids.len() > SELECTION_MAX {
        return Err(SelectError::TooMany);
    }
    let mut by_message: HashMap<&str, Option<u64>> = HashMap::new();
    let mut unknown: HashMap<&str, Option<u64>> = HashMap::new();
    for id in ids {
        if full_number(handle, id).is_none() {
            match indexed(handle, id).await? {
                Some(letter) => drop(by_message.insert(id, letter)),
                None => drop(unknown.insert(id, None)),
            }
        }
    }
    if !unknown.is_empty() {
        find_by_message(handle, &mut unknown).await?;
        by_message.extend(unknown);
    }
    let mut numbers = BTreeSet::new();
    for id in ids {
        let pipeline = || handle.name().to_owned();
        let by_message = by_message.get(id.as_str()).copied().flatten();
        let by_number = match full_number(handle, id).or_else(|| id.parse().ok()) {
            Some(number) => existing(handle, number).await?,
            None => None,
        };
        match (by_message, by_number) {
            (Some(by_message), Some(number)) if by_message != number => {
                let ids = LetterIds::of(handle);
                let [by_number, by_message] = [number, by_message].map(|number| ids.text(number));
                return Err(SelectError::Ambiguous { id: id.clone(), by_number, by_message });
            }
            (Some(number), _) | (None, Some(number)) => drop(numbers.insert(number)),
            (None, None) => return Err(SelectError::NotFound { pipeline: pipeline(), id: id.clone() }),
        }
    }
    Ok(numbers.into_iter().collect())
}

/// The named letters that are not open, with their states.
pub async fn not_open(
    handle: &PipelineHandle,
    ids: &[String],
) -> Result<Vec<(u64, LetterState)>, SelectError> {
    let numbers = resolve(handle, ids).await?;
    // The job 0 is a dummy: this query is used because it reads no content.
    let standings = handle.letter_standings(0, numbers.clone()).await?;
    let states =
        numbers.into_iter().zip(standings).filter_map(|(number, standing)| Some((number, standing?.state)));
    Ok(states.filter(|(_, state)| *state != LetterState::Open).collect())
}

/// The number in a letter's full id. `None` for another prefix: a message id may contain a slash too.
fn full_number(handle: &PipelineHandle, id: &str) -> Option<u64> {
    LetterIds::of(handle).number(id)
}

/// The number, if there is such a letter.
async fn existing(handle: &PipelineHandle, number: u64) -> Result<Option<u64>, SelectError> {
    // The job 0 is a dummy: this query is used because it reads no content.
    let standings = handle.letter_standings(0, [number]).await?;
    Ok(standings.first().is_some_and(Option::is_some).then_some(number))
}

/// The latest letter of a message, by the index; the outer `None` means that only a scan can tell.
async fn indexed(handle: &PipelineHandle, id: &str) -> Result<Option<Option<u64>>, SelectError> {
    if let Some(numbers) = handle.letters_of(id).await? {
        for number in numbers.into_iter().rev() {
            // Another id may have the same hash.
            let letter = handle.letter(number).await?;
            if letter.is_some_and(|letter| letter.is_of(id)) {
                return Ok(Some(Some(number)));
            }
        }
        return Ok(Some(None));
    }
    match handle.message(id).await {
        Ok(found) => Ok(found.and_then(|found| found.letter).map(Some)),
        Err(HandleError::NotRemembered(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Scans all letters for messages whose ids are in no index, which is slow. The latest letter of an id counts.
async fn find_by_message(
    handle: &PipelineHandle,
    unknown: &mut HashMap<&str, Option<u64>>,
) -> Result<(), SelectError> {
    let mut after = None;
    loop {
        let scan = handle.scan_letters(None, after, READ_MAX, LOOK_MAX).await?;
        for letter in &scan.letters {
            for id in [letter.accepted_id(), letter.message.id()] {
                if let Some(found) = unknown.get_mut(id) {
                    *found = Some(letter.id);
                }
            }
        }
        after = scan.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// A letter's id in the form that users write.
pub fn letter_id(pipeline: &str, number: u64) -> String {
    LetterIds { pipeline, are_places: false }.text(number)
}

/// How the letters of a pipeline are named: `orders/17`, or `orders/7/1182` by the record's partition and offset in
/// its topic.
#[derive(Clone, Copy, Debug)]
pub struct LetterIds<'a> {
    /// The pipeline of the letters.
    pub pipeline: &'a str,
    /// Whether messages come from a topic, so that their numbers are positions there.
    pub are_places: bool,
}

impl<'a> LetterIds<'a> {
    /// The names of the letters of this pipeline.
    pub fn of(handle: &'a PipelineHandle) -> Self {
        Self { pipeline: handle.name(), are_places: !handle.takes_messages() }
    }

    /// The name of a letter: `orders/17`.
    pub fn text(self, number: u64) -> String {
        let Self { pipeline, are_places } = self;
        if are_places {
            format!("{pipeline}/{}", PartitionOffset::of(number))
        } else {
            format!("{pipeline}/{number}")
        }
    }

    /// The number in a full id; `None` if it is not an id of this pipeline.
    pub fn number(self, id: &str) -> Option<u64> {
        let number = id.strip_prefix(self.pipeline)?.strip_prefix('/')?;
        if self.are_places {
            PartitionOffset::parse(number).map(PartitionOffset::number)
        } else {
            number.parse().ok()
        }
    }
}
