//! Imports letters of messages that died elsewhere: each is a record of `T.DLQ` and a state, in one transaction.
//!
//! The state makes the letter known to the next process even if that has not read `T.DLQ` that far: states are read to
//! their end before anything is changed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use redrive::internal::engine::import::{content_hash, is_same};
use redrive::internal::engine::position::PartitionOffset;
use redrive::internal::engine::{EngineError, ForeignLetter, ImportAnswer, LetterState, OnBehalf};
use redrive_core::{Message, Reason, Time};

use super::entry::{DlqPosition, LetterEntry};
use super::index::LearnedFrom;
use super::state::StateRecord;
use super::transaction::Outgoing;
use super::view::unreadable;
use super::writer::{BATCH_BYTES, BATCH_MAX, LetterWriter, Unpublished, WAIT_MAX};
use crate::record::{self, CopyRecord, LetterMarks, Origin};

/// Numbers tried for a message without a source position. More would be needed only if several messages had the same
/// hash.
const NUMBERS_MAX: u8 = 4;

/// A letter that does not exist yet.
struct NewLetter {
    copy: CopyRecord,
    from: Option<Origin>,
}

/// What is known about a message under the numbers it may have.
enum KnownLetter {
    No {
        number: u64,
    },
    Letter {
        number: u64,
    },
    /// All of the numbers belong to other messages.
    NoNumber,
}

/// The new letters of a transaction, and the answers if it succeeds.
#[derive(Default)]
struct ImportPlan {
    answers: Vec<ImportAnswer>,
    new: Vec<NewLetter>,
}

/// Creates letters, except those whose message already has one. Durable on return.
pub(super) fn import(
    writer: &mut LetterWriter,
    letters: &[ForeignLetter],
    dry_run: bool,
    asked: OnBehalf<'_>,
) -> Result<Vec<ImportAnswer>, EngineError> {
    writer.cache().check_loaded()?;
    let deadline = Instant::now() + WAIT_MAX;
    let mut answers: Vec<ImportAnswer> = Vec::with_capacity(letters.len());
    let mut refused: HashMap<u64, String> = HashMap::new();
    // Letters of a transaction whose outcome is unknown.
    let mut tried: HashSet<u64> = HashSet::new();
    while answers.len() < letters.len() {
        if !dry_run {
            writer.begin(deadline)?;
        }
        let ImportPlan { answers: mut part, new } =
            plan_import(writer, &letters[answers.len()..], asked.at, &refused, &mut tried)?;
        if dry_run {
            let planned: HashSet<u64> = new.iter().map(|new| new.copy.origin.number()).collect();
            part.iter_mut().for_each(|answer| forget_number(answer, &planned));
            answers.append(&mut part);
            continue;
        }
        match publish_letters(writer, &new, asked, deadline)? {
            Ok(()) => answers.append(&mut part),
            Err(Unpublished::Refused { record, why }) => {
                // Each letter has two records.
                let number = new[record / 2].copy.origin.number();
                refused.insert(number, format!("Kafka refuses its record: {why}"));
            }
            Err(Unpublished::Unknown) => tried.extend(new.iter().map(|new| new.copy.origin.number())),
        }
    }
    Ok(answers)
}

/// Returns answers for as many letters as fit into one transaction, and the new letters of that transaction.
fn plan_import(
    writer: &LetterWriter,
    letters: &[ForeignLetter],
    now: Time,
    refused: &HashMap<u64, String>,
    tried: &mut HashSet<u64>,
) -> Result<ImportPlan, EngineError> {
    let grouping = writer.cache().lock().grouping().clone();
    let (mut plan, mut bytes) = (ImportPlan::default(), 0);
    for letter in letters {
        if plan.new.len() >= BATCH_MAX || bytes >= BATCH_BYTES {
            break;
        }
        let last = letter.history.attempts().pop();
        let group = grouping.of(Reason::Imported, last.as_ref());
        let answer = match known(writer, letter, &plan.new)? {
            KnownLetter::Letter { number } if tried.remove(&number) => {
                ImportAnswer::Imported { number: Some(number), group }
            }
            KnownLetter::Letter { number } => ImportAnswer::Already { number: Some(number) },
            KnownLetter::NoNumber => {
                ImportAnswer::Refused { why: "its place is taken by another message".to_owned() }
            }
            KnownLetter::No { number } => {
                if let Some(why) = refused.get(&number) {
                    ImportAnswer::Refused { why: why.clone() }
                } else {
                    bytes += letter.message.wire().len() + letter.history.raw().len();
                    plan.new.push(new_letter(writer, letter, number, group.clone(), now));
                    ImportAnswer::Imported { number: Some(number), group }
                }
            }
        };
        plan.answers.push(answer);
    }
    Ok(plan)
}

fn new_letter(
    writer: &LetterWriter,
    letter: &ForeignLetter,
    number: u64,
    group: redrive_core::Fingerprint,
    now: Time,
) -> NewLetter {
    let copy = CopyRecord {
        message: letter.message.clone(),
        meta: letter.meta,
        history: letter.history.clone(),
        // Its number is a position in the source, whether or not there is a record.
        origin: Origin::of_number(writer.topics().source.as_str().into(), number),
        due: None,
        reason: Some(Reason::Imported),
        dead_at: Some(now),
        job: None,
        marks: LetterMarks { group: Some(group), ..LetterMarks::default() },
    };
    let from = letter.origin.as_ref().map(|place| Origin {
        topic: Arc::clone(&place.topic),
        partition: place.partition,
        offset: place.offset.cast_signed(),
    });
    NewLetter { copy, from }
}

/// Looks for the letter of a message: under its position in the source, then under numbers made from its content.
fn known(
    writer: &LetterWriter,
    letter: &ForeignLetter,
    new: &[NewLetter],
) -> Result<KnownLetter, EngineError> {
    let of_source = letter.origin.as_ref().filter(|place| *place.topic == *writer.topics().source);
    let of_source = of_source.and_then(|place| {
        let place = PartitionOffset { partition: u16::try_from(place.partition).ok()?, offset: place.offset };
        (!place.is_made()).then(|| place.number())
    });
    let made =
        (0..NUMBERS_MAX).map(|salt| PartitionOffset::made(content_hash(&letter.message, salt)).number());
    for number in of_source.into_iter().chain(made) {
        if let Some(same) = new.iter().find(|new| new.copy.origin.number() == number) {
            if is_same(&same.copy.message, &letter.message) {
                return Ok(KnownLetter::Letter { number });
            }
            continue;
        }
        match is_letter_of(writer, number, &letter.message)? {
            None => return Ok(KnownLetter::No { number }),
            Some(true) => return Ok(KnownLetter::Letter { number }),
            Some(false) => {}
        }
    }
    Ok(KnownLetter::NoNumber)
}

/// Whether the letter with this number has this message; `None` if there is no such letter.
fn is_letter_of(writer: &LetterWriter, number: u64, message: &Message) -> Result<Option<bool>, EngineError> {
    let at = {
        let inner = writer.cache().lock();
        if !inner.index.has(number) {
            return Ok(None);
        }
        inner.index.get(number).map(LetterEntry::at)
    };
    // A letter that is gone, not read yet, or unreadable counts as the same, so that it is not created twice.
    let Some(at) = at else { return Ok(Some(true)) };
    let content = writer.cache().content(at).map_err(|error| unreadable(&error))?;
    if content.is_none_or(|content| is_same(&content.message, message)) {
        return Ok(Some(true));
    }
    // A letter that died again after an edit is stored in its edited form.
    let edited = writer.cache().edit_record(number).map_err(|error| unreadable(&error))?;
    let before = edited.map(|record| record.replaced).unwrap_or_default();
    Ok(Some(before.iter().any(|version| is_same(&version.message, message))))
}

fn publish_letters(
    writer: &mut LetterWriter,
    new: &[NewLetter],
    asked: OnBehalf<'_>,
    deadline: Instant,
) -> Result<Result<(), Unpublished>, EngineError> {
    if new.is_empty() {
        return Ok(Ok(()));
    }
    let topics = Arc::clone(writer.topics());
    let mut records = Vec::with_capacity(new.len() * 2);
    for NewLetter { copy, from } in new {
        let (number, partition) = (copy.origin.number(), copy.origin.partition);
        records.push(Outgoing {
            topic: &topics.dlq,
            partition: writer.partition(&topics.dlq, partition),
            key: copy.message.key().map(<[u8]>::to_vec),
            payload: copy.message.payload().map(<[u8]>::to_vec),
            headers: Some(record::headers(copy, from.as_ref())),
        });
        let state = StateRecord { generation: 0, is: LetterState::Open, jobs: Vec::new(), at: asked.at };
        records.push(Outgoing {
            topic: &topics.dlq_state,
            partition: writer.partition(&topics.dlq_state, partition),
            key: Some(StateRecord::key(number).into_bytes()),
            payload: Some(state.to_json_by(asked.by)),
            headers: None,
        });
    }
    match writer.publish(&records, deadline)? {
        Ok(places) => {
            let mut inner = writer.cache().lock();
            for (new, (partition, offset)) in new.iter().zip(places.into_iter().step_by(2)) {
                let place = DlqPosition::new(partition, offset);
                inner.parked(place, &new.copy, LearnedFrom::Acknowledgement);
            }
            Ok(Ok(()))
        }
        Err(unpublished) => Ok(Err(unpublished)),
    }
}

/// Removes the number from an answer if it was only probed and not taken.
fn forget_number(answer: &mut ImportAnswer, planned: &HashSet<u64>) {
    match answer {
        ImportAnswer::Imported { number, .. } => *number = None,
        // A duplicate of an earlier letter in the batch.
        ImportAnswer::Already { number } => *number = number.filter(|number| !planned.contains(number)),
        ImportAnswer::Refused { .. } => {}
    }
}
