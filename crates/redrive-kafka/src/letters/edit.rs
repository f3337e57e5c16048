//! Edits letters and undoes edits, as transactions on `T.DLQ.state`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use redrive::internal::engine::edit::EDITS_MAX;
use redrive::internal::engine::{EditAnswer, EngineError, LetterEdit, LetterState, OnBehalf, Replaced};
use redrive_core::{Message, Time};

use super::edit_record::EditRecord;
use super::entry::LetterEntry;
use super::transaction::Outgoing;
use super::view::unreadable;
use super::writer::{BATCH_BYTES, BATCH_MAX, LetterWriter, Published, WAIT_MAX};

/// Largest record that a topic with Kafka's default size limit accepts; `T.DLQ.state` is created without another limit.
/// The size is checked here because a broker that refuses a record ends the transaction without saying which record it
/// was.
const RECORD_BYTES_MAX: usize = 1_000_000;

/// The current version of a letter, before and after a change.
struct Version {
    dead_at: Time,
    message: Message,
    replaced: Vec<Replaced>,
}

/// Replaces the messages of open letters. Durable on return.
pub(super) fn edit_letters(
    writer: &mut LetterWriter,
    edit: &str,
    letters: &[LetterEdit],
    asked: OnBehalf<'_>,
) -> Result<Vec<EditAnswer>, EngineError> {
    let numbers: Vec<u64> = letters.iter().map(|letter| letter.letter).collect();
    let change = |at: usize, version: &mut Version| {
        let (new, last) = (&letters[at], version.replaced.last().map(|replaced| replaced.edit.as_str()));
        if !new.from.is_current(version.dead_at, last) {
            return Err(EditAnswer::Changed);
        }
        if version.replaced.len() >= EDITS_MAX {
            return Err(EditAnswer::TooMany);
        }
        let message = std::mem::replace(&mut version.message, new.message.clone());
        version.replaced.push(Replaced { edit: edit.to_owned(), message });
        Ok(())
    };
    revise(writer, asked, &numbers, change, |edits| edits.iter().any(|one| one == edit))
}

/// Restores the previous message of letters whose last edit is this one. Durable on return.
pub(super) fn undo_edit(
    writer: &mut LetterWriter,
    edit: &str,
    ids: &[u64],
    asked: OnBehalf<'_>,
) -> Result<Vec<EditAnswer>, EngineError> {
    let change = |_: usize, version: &mut Version| {
        let before = version.replaced.pop_if(|replaced| replaced.edit == edit);
        version.message = before.ok_or(EditAnswer::Changed)?.message;
        Ok(())
    };
    revise(writer, asked, ids, change, |edits| edits.iter().all(|one| one != edit))
}

/// Returns the message that a letter had before one of its edits.
pub(super) fn message_before(
    writer: &LetterWriter,
    number: u64,
    edit: &str,
) -> Result<Option<Message>, EngineError> {
    writer.cache().check_loaded()?;
    let record = writer.cache().edit_record(number).map_err(|error| unreadable(&error))?;
    let replaced = record.map(|record| record.replaced).unwrap_or_default();
    Ok(replaced.into_iter().find(|version| version.edit == edit).map(|version| version.message))
}

/// Changes open letters in as many transactions as needed. `is_done` tells from the edits of a letter whether the
/// change has happened, which is needed after a transaction whose outcome is unknown.
fn revise(
    writer: &mut LetterWriter,
    asked: OnBehalf<'_>,
    numbers: &[u64],
    change: impl Fn(usize, &mut Version) -> Result<(), EditAnswer>,
    is_done: impl Fn(&[String]) -> bool,
) -> Result<Vec<EditAnswer>, EngineError> {
    writer.cache().check_loaded()?;
    let deadline = Instant::now() + WAIT_MAX;
    let mut answers: Vec<EditAnswer> = Vec::with_capacity(numbers.len());
    let (mut refused, mut tried): (HashSet<u64>, HashSet<u64>) = (HashSet::new(), HashSet::new());
    while answers.len() < numbers.len() {
        writer.begin(deadline)?;
        let (mut part, mut planned, mut bytes) = (Vec::new(), Vec::<(u64, Vec<u8>)>::new(), 0);
        for (at, number) in numbers.iter().enumerate().skip(answers.len()) {
            if planned.len() >= BATCH_MAX || bytes >= BATCH_BYTES {
                break;
            }
            let answer = match revised(writer, *number, |version| change(at, version))? {
                _ if refused.contains(number) => EditAnswer::TooLarge,
                // The version that this change is based on will be replaced by the first change.
                _ if planned.iter().any(|(other, _)| other == number) => EditAnswer::Changed,
                Err(EditAnswer::Changed)
                    if tried.contains(number) && has_edits(writer, *number, &is_done) =>
                {
                    EditAnswer::Done
                }
                Err(answer) => answer,
                Ok(record) => {
                    let value = record.write(asked.at, asked.by);
                    if value.len() > RECORD_BYTES_MAX {
                        EditAnswer::TooLarge
                    } else {
                        bytes += value.len();
                        planned.push((*number, value));
                        EditAnswer::Done
                    }
                }
            };
            part.push(answer);
        }
        match publish_edits(writer, &planned, deadline)? {
            Published::All => answers.append(&mut part),
            Published::Refused(number) => drop(refused.insert(number)),
            Published::Unknown => tried.extend(planned.iter().map(|(number, _)| *number)),
        }
    }
    Ok(answers)
}

fn has_edits(writer: &LetterWriter, number: u64, is_done: impl Fn(&[String]) -> bool) -> bool {
    let inner = writer.cache().lock();
    is_done(inner.index.edited(number).map_or(&[][..], |edited| &edited.edits[..]))
}

/// Returns the new version of an open letter, or why it is not changed.
fn revised(
    writer: &LetterWriter,
    number: u64,
    change: impl FnOnce(&mut Version) -> Result<(), EditAnswer>,
) -> Result<Result<EditRecord, EditAnswer>, EngineError> {
    let entry = writer.cache().lock().index.get(number).cloned();
    let Some(entry) = entry else { return Ok(Err(EditAnswer::NotFound)) };
    match entry.state() {
        Some(LetterState::Open) => {}
        Some(state) => return Ok(Err(EditAnswer::NotOpen(state))),
        None => return Ok(Err(EditAnswer::NotFound)),
    }
    let Some(mut version) = version(writer, number, &entry)? else { return Ok(Err(EditAnswer::Damaged)) };
    let generation = entry.generation();
    Ok(change(&mut version).map(|()| EditRecord {
        generation,
        message: version.message,
        replaced: version.replaced,
    }))
}

/// Returns what would be delivered now, with the earlier versions; `None` if it cannot be read in full.
fn version(writer: &LetterWriter, number: u64, entry: &LetterEntry) -> Result<Option<Version>, EngineError> {
    let edited = writer.cache().edit_record(number).map_err(|error| unreadable(&error))?;
    let (current, replaced) = match edited {
        Some(record) if record.generation == entry.generation() => (Some(record.message), record.replaced),
        Some(record) => (None, record.replaced),
        None => (None, Vec::new()),
    };
    let message = match current {
        Some(message) => Some(message),
        None if entry.is_cut() => None,
        None => {
            let content = writer.cache().content(entry.at()).map_err(|error| unreadable(&error))?;
            content.map(|content| content.message)
        }
    };
    Ok(message.map(|message| Version { dead_at: entry.dead_at(), message, replaced }))
}

fn publish_edits(
    writer: &mut LetterWriter,
    planned: &[(u64, Vec<u8>)],
    deadline: Instant,
) -> Result<Published, EngineError> {
    if planned.is_empty() {
        return writer.sure_of_nothing(deadline);
    }
    let topics = Arc::clone(writer.topics());
    let record = |(number, value): &(u64, Vec<u8>)| Outgoing {
        topic: &topics.dlq_state,
        partition: writer.partition(&topics.dlq_state, (*number >> 48) as i32),
        key: Some(EditRecord::key(*number).into_bytes()),
        payload: Some(value.clone()),
        headers: None,
    };
    let records: Vec<Outgoing<'_>> = planned.iter().map(record).collect();
    let of: Vec<u64> = planned.iter().map(|(number, _)| *number).collect();
    let (published, ends): (Published, HashMap<i32, i64>) = writer.commit(&records, &of, deadline)?;
    if matches!(published, Published::All) && !writer.has_read(&ends, deadline) {
        // It is committed anyway, so update the index directly.
        let mut inner = writer.cache().lock();
        for (number, value) in planned {
            inner.edited(*number, Some(&Bytes::copy_from_slice(value)));
        }
    }
    Ok(published)
}
