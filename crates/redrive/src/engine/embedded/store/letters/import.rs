//! Importing letters: they are compared with existing ones, and numbered once they are written.

use std::collections::HashMap;

use redrive_core::{Message, Reason, Time};

use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::IndexTables;
use crate::engine::embedded::journal::record::{Stored, Was};
use crate::engine::embedded::store::find::Lookup;
use crate::engine::import::{ForeignLetter, ImportAnswer, is_same};
use crate::engine::seam::EngineError;

/// What is known about a message before its letter is created.
enum Known {
    No,
    Letter(u64),
    /// Too many letters have its id to compare them.
    TooMany,
}

/// The answers for imported letters, and the letters to be written.
pub(super) struct Import {
    pub(super) answers: Vec<ImportAnswer>,
    pub(super) letters: Vec<Stored>,
}

impl Import {
    /// The answers once the letters are written, the first of them under this number.
    pub(super) fn numbered_from(mut self, first: u64) -> Vec<ImportAnswer> {
        let imported = self.answers.iter_mut().filter_map(|answer| match answer {
            ImportAnswer::Imported { number, .. } => Some(number),
            _ => None,
        });
        imported.zip(first..).for_each(|(place, number)| *place = Some(number));
        self.answers
    }
}

/// What an import of these letters would do now.
pub(super) fn plan<D: Disk, S: IndexTables>(
    lookup: &Lookup<'_, D, S>,
    letters: Vec<ForeignLetter>,
    now: Time,
) -> Result<Import, EngineError> {
    let mut answers = Vec::with_capacity(letters.len());
    let mut made: Vec<Stored> = Vec::new();
    // The new messages of this batch, by id.
    let mut batch: HashMap<String, Vec<Message>> = HashMap::new();
    for letter in letters {
        let of_id = batch.entry(letter.message.id().to_owned()).or_default();
        if of_id.iter().any(|before| is_same(before, &letter.message)) {
            answers.push(ImportAnswer::Already { number: None });
            continue;
        }
        match known(lookup, &letter.message)? {
            Known::Letter(number) => answers.push(ImportAnswer::Already { number: Some(number) }),
            Known::TooMany => {
                let why = "more than 1,000 letters have its message id; it was not compared with them";
                answers.push(ImportAnswer::Refused { why: why.to_owned() });
            }
            Known::No => {
                of_id.push(letter.message.clone());
                let last = letter.history.attempts().pop();
                let group = lookup.options.grouping.of(Reason::Imported, last.as_ref());
                answers.push(ImportAnswer::Imported { number: None, group: group.clone() });
                made.push(Stored {
                    was: Was::Fresh,
                    // It was never in the line of its key and blocks nothing; a replay puts it there.
                    key: None,
                    due: None,
                    jobs: Vec::new(),
                    reason: Some(Reason::Imported),
                    state: None,
                    dead_at: now.as_millis(),
                    moved_from: 0,
                    meta: letter.meta,
                    history: letter.history.raw().clone(),
                    group: Some(group),
                    options: None,
                    replaced: Vec::new(),
                    wire: letter.message.wire().clone(),
                });
            }
        }
    }
    Ok(Import { answers, letters: made })
}

/// Whether a message has a letter, including one that had it before an edit.
fn known<D: Disk, S: IndexTables>(
    lookup: &Lookup<'_, D, S>,
    message: &Message,
) -> Result<Known, EngineError> {
    let Some(numbers) = lookup.find_letters_of(message.id())? else { return Ok(Known::TooMany) };
    for number in numbers {
        let Some(slot) = lookup.book.asked_letter(number)? else { continue };
        let letter = lookup.contents.letter(number, &slot, &lookup.options.grouping)?;
        if is_same(&letter.message, message) {
            return Ok(Known::Letter(number));
        }
        let before = if letter.edits.is_empty() { Vec::new() } else { lookup.contents.replaced(&slot)? };
        let mut before = before.into_iter().filter_map(|version| Message::from_wire(version.wire).ok());
        if before.any(|before| is_same(&before, message)) {
            return Ok(Known::Letter(number));
        }
    }
    Ok(Known::No)
}
