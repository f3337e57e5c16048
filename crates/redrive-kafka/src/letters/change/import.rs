//! Letters of messages that died elsewhere: each is a record of `T.DLQ` and a state, in one transaction.
//!
//! The state is written so that whoever begins after this process knows of the letter, even if it has not read `T.DLQ` that
//! far: states are read to their end before anything is changed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use redrive::engine::import::{content_hash, is_same};
use redrive::engine::place::Place;
use redrive::engine::{EngineError, ForeignLetter, ImportAnswer, LetterState};
use redrive_core::{Message, Reason, Time};

use super::{BATCH_BYTES, BATCH_MAX, LetterChanges, WAIT_MAX};
use crate::letters::entry::DlqPosition;
use crate::letters::index::LearnedFrom;
use crate::letters::state::StateRecord;
use crate::letters::transaction::{Outgoing, TransactionError};
use crate::letters::view::unreadable;
use crate::record::{self, CopyRecord, LetterMarks, Origin};

/// Numbers that are tried for a message that has none of its own; more are taken only by messages with the same hash.
const NUMBERS_MAX: u8 = 4;

/// A letter that is not there yet.
struct NewLetter {
    copy: CopyRecord,
    from: Option<Origin>,
}

/// What is known of a message under the numbers it may have.
enum Known {
    No {
        number: u64,
    },
    Letter {
        number: u64,
    },
    /// All of them belong to others.
    NoNumber,
}

/// What a transaction is to do, and the answers if it does.
#[derive(Default)]
struct Plan {
    answers: Vec<ImportAnswer>,
    new: Vec<NewLetter>,
}

impl LetterChanges {
    /// Makes letters, each unless there is one with the same message. Durable on return.
    pub fn import(
        &mut self,
        letters: &[ForeignLetter],
        dry_run: bool,
        now: Time,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        self.cache.check_loaded()?;
        let deadline = Instant::now() + WAIT_MAX;
        let mut answers: Vec<ImportAnswer> = Vec::with_capacity(letters.len());
        let mut refused: HashMap<u64, String> = HashMap::new();
        // Letters of a transaction whose end is not known.
        let mut tried: HashSet<u64> = HashSet::new();
        while answers.len() < letters.len() {
            if !dry_run {
                self.begin(deadline)?;
            }
            let Plan { answers: mut part, new } =
                self.plan_import(&letters[answers.len()..], now, &refused, &mut tried)?;
            if dry_run {
                part.iter_mut().for_each(forget_number);
                answers.append(&mut part);
                continue;
            }
            match self.publish_letters(&new, now, deadline)? {
                Ok(()) => answers.append(&mut part),
                Err(Unpublished::Refused(number, why)) => drop(refused.insert(number, why)),
                Err(Unpublished::Unknown) => tried.extend(new.iter().map(|new| new.copy.origin.number())),
            }
        }
        Ok(answers)
    }

    /// Answers for as many letters as one transaction may have, and what that transaction does.
    fn plan_import(
        &self,
        letters: &[ForeignLetter],
        now: Time,
        refused: &HashMap<u64, String>,
        tried: &mut HashSet<u64>,
    ) -> Result<Plan, EngineError> {
        let grouping = self.cache.lock().grouping().clone();
        let (mut plan, mut bytes) = (Plan::default(), 0);
        for letter in letters {
            if plan.new.len() >= BATCH_MAX || bytes >= BATCH_BYTES {
                break;
            }
            let last = letter.history.attempts().pop();
            let group = grouping.of(Reason::Imported, last.as_ref());
            let answer = match self.known(letter, &plan.new)? {
                Known::Letter { number } if tried.remove(&number) => {
                    ImportAnswer::Imported { number: Some(number), group }
                }
                Known::Letter { number } => ImportAnswer::Already { number: Some(number) },
                Known::NoNumber => {
                    ImportAnswer::Refused { why: "its place is taken by another message".to_owned() }
                }
                Known::No { number } => {
                    if let Some(why) = refused.get(&number) {
                        ImportAnswer::Refused { why: why.clone() }
                    } else {
                        bytes += letter.message.wire().len() + letter.history.raw().len();
                        plan.new.push(self.new_letter(letter, number, group.clone(), now));
                        ImportAnswer::Imported { number: Some(number), group }
                    }
                }
            };
            plan.answers.push(answer);
        }
        Ok(plan)
    }

    fn new_letter(
        &self,
        letter: &ForeignLetter,
        number: u64,
        group: redrive_core::Fingerprint,
        now: Time,
    ) -> NewLetter {
        let copy = CopyRecord {
            message: letter.message.clone(),
            meta: letter.meta,
            history: letter.history.clone(),
            // Its number is a place in the source, whether there is a record or not.
            origin: Origin::of_number(self.topics.source.as_str().into(), number),
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

    /// Whether a message has a letter: under the place it has in the source, or under numbers made from its content.
    fn known(&self, letter: &ForeignLetter, new: &[NewLetter]) -> Result<Known, EngineError> {
        let of_source = letter.origin.as_ref().filter(|place| *place.topic == *self.topics.source);
        let of_source = of_source.and_then(|place| {
            let place = Place { partition: u16::try_from(place.partition).ok()?, offset: place.offset };
            (!place.is_made()).then(|| place.number())
        });
        let made = (0..NUMBERS_MAX).map(|salt| Place::made(content_hash(&letter.message, salt)).number());
        for number in of_source.into_iter().chain(made) {
            if let Some(same) = new.iter().find(|new| new.copy.origin.number() == number) {
                if is_same(&same.copy.message, &letter.message) {
                    return Ok(Known::Letter { number });
                }
                continue;
            }
            match self.is_letter_of(number, &letter.message)? {
                None => return Ok(Known::No { number }),
                Some(true) => return Ok(Known::Letter { number }),
                Some(false) => {}
            }
        }
        Ok(Known::NoNumber)
    }

    /// Whether the letter with this number has this message; `None` if there is no such letter.
    fn is_letter_of(&self, number: u64, message: &Message) -> Result<Option<bool>, EngineError> {
        let at = {
            let inner = self.cache.lock();
            if !inner.index.has(number) {
                return Ok(None);
            }
            inner.index.get(number).map(super::LetterEntry::at)
        };
        // One that is gone, is still to be read or cannot be read is taken for the same: it must not be made twice.
        let Some(at) = at else { return Ok(Some(true)) };
        let content = self.cache.content(at).map_err(|error| unreadable(&error))?;
        Ok(Some(content.is_none_or(|content| is_same(&content.message, message))))
    }

    fn publish_letters(
        &mut self,
        new: &[NewLetter],
        now: Time,
        deadline: Instant,
    ) -> Result<Result<(), Unpublished>, EngineError> {
        if new.is_empty() {
            return Ok(Ok(()));
        }
        let topics = Arc::clone(&self.topics);
        let mut records = Vec::with_capacity(new.len() * 2);
        for NewLetter { copy, from } in new {
            let (number, partition) = (copy.origin.number(), copy.origin.partition);
            records.push(Outgoing {
                topic: &topics.dlq,
                partition: self.partition(&topics.dlq, partition),
                key: copy.message.key().map(<[u8]>::to_vec),
                payload: copy.message.payload().map(<[u8]>::to_vec),
                headers: Some(record::headers(copy, from.as_ref())),
            });
            let state = StateRecord { generation: 0, is: LetterState::Open, jobs: Vec::new(), at: now };
            records.push(Outgoing {
                topic: &topics.dlq_state,
                partition: self.partition(&topics.dlq_state, partition),
                key: Some(StateRecord::key(number).into_bytes()),
                payload: Some(state.to_json_by(self.actor.as_deref())),
                headers: None,
            });
        }
        match self.transactions.publish(&records, deadline) {
            Ok(places) => {
                let mut inner = self.cache.lock();
                for (new, (partition, offset)) in new.iter().zip(places.into_iter().step_by(2)) {
                    let place = DlqPosition::new(partition, offset);
                    inner.parked(place, &new.copy, LearnedFrom::Acknowledgement);
                }
                Ok(Ok(()))
            }
            Err(TransactionError::Refused { record, why }) => {
                let number = new[record / 2].copy.origin.number();
                Ok(Err(Unpublished::Refused(number, format!("Kafka refuses its record: {why}"))))
            }
            Err(TransactionError::Forbidden(why)) => Err(self.forbidden(&why)),
            Err(TransactionError::Lost(why)) => {
                self.step_back(deadline, &why)?;
                Ok(Err(Unpublished::Unknown))
            }
        }
    }
}

/// Why letters were not published, or may not have been.
enum Unpublished {
    /// Kafka does not take the record of this letter.
    Refused(u64, String),
    Unknown,
}

/// Nothing has a number that was only looked at.
fn forget_number(answer: &mut ImportAnswer) {
    if let ImportAnswer::Imported { number, .. } = answer {
        *number = None;
    }
}
