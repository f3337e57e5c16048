//! Letters of messages that died elsewhere: checked against what is there, numbered by the writer, durable on return.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use redrive_core::{Message, Reason, Time};

use super::store::Store;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::IndexTables;
use crate::engine::embedded::journal::record::{Stored, Was};
use crate::engine::embedded::write::command::Command;
use crate::engine::import::{ForeignLetter, ImportAnswer, is_same};
use crate::engine::seam::EngineError;

/// What is known of a message before its letter is made.
enum Known {
    No,
    Letter(u64),
    /// So many letters have its id that they are not compared.
    TooMany,
}

impl<D: Disk, S: IndexTables> Store<D, S> {
    pub(super) fn import_letters(
        &mut self,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        now: Time,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        let mut answers = Vec::with_capacity(letters.len());
        let mut made: Vec<Stored> = Vec::new();
        // The messages of this batch that are new, by id.
        let mut batch: HashMap<String, Vec<Message>> = HashMap::new();
        for letter in letters {
            let of_id = batch.entry(letter.message.id().to_owned()).or_default();
            if of_id.iter().any(|before| is_same(before, &letter.message)) {
                answers.push(ImportAnswer::Already { number: None });
                continue;
            }
            match self.known(&letter.message)? {
                Known::Letter(number) => answers.push(ImportAnswer::Already { number: Some(number) }),
                Known::TooMany => {
                    let why = "more than 1,000 letters have its message id; it was not compared with them";
                    answers.push(ImportAnswer::Refused { why: why.to_owned() });
                }
                Known::No => {
                    of_id.push(letter.message.clone());
                    let last = letter.history.attempts().pop();
                    let group = self.options.grouping.of(Reason::Imported, last.as_ref());
                    answers.push(ImportAnswer::Imported { number: None, group: group.clone() });
                    made.push(Stored {
                        was: Was::Fresh,
                        // It never stood in the line of its key, and blocks nobody. A replay puts it there.
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
        if dry_run || made.is_empty() {
            return Ok(answers);
        }
        let first = self.write(made)?;
        let imported = answers.iter_mut().filter_map(|answer| match answer {
            ImportAnswer::Imported { number, .. } => Some(number),
            _ => None,
        });
        imported.zip(first..).for_each(|(place, number)| *place = Some(number));
        Ok(answers)
    }

    /// Writes the letters; the number of the first once all of them are durable.
    fn write(&mut self, letters: Vec<Stored>) -> Result<u64, EngineError> {
        let first = Arc::new(OnceLock::new());
        let ticket = self.tickets.issue();
        self.workers.post(Command::Import { ticket, letters, first: Arc::clone(&first) });
        self.wait_for(ticket)?;
        match first.get() {
            Some(Ok(first)) => Ok(*first),
            Some(Err(error)) => Err(EngineError::Unavailable(error.to_string())),
            None => Err(EngineError::Storage("the writer has stopped".to_owned())),
        }
    }

    fn known(&self, message: &Message) -> Result<Known, EngineError> {
        let Some(numbers) = self.lookup().find_letters_of(message.id())? else { return Ok(Known::TooMany) };
        for number in numbers {
            let Some(slot) = self.waiting.book.asked_letter(number)? else { continue };
            let letter = self.waiting.contents.letter(number, &slot, &self.options.grouping)?;
            if is_same(&letter.message, message) {
                return Ok(Known::Letter(number));
            }
        }
        Ok(Known::No)
    }
}
