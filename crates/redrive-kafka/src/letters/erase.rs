//! Erases letters in transactions: each writes a tombstone at the end of `T.DLQ` and the state in `T.DLQ.state`, and
//! deletes the record of edits. The old records stay in their topics until these are trimmed or compacted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use redrive::internal::engine::erase::{tombstone, untitled};
use redrive::internal::engine::{EngineError, EraseAnswer, EraseOrder, LetterState};
use redrive_core::Time;

use super::edit_record::EditRecord;
use super::entry::LetterEntry;
use super::state::StateRecord;
use super::transaction::Outgoing;
use super::view::{stand_in, unreadable};
use super::writer::{BATCH_MAX, LetterWriter, Published, WAIT_MAX};
use crate::record::{self, CopyRecord, LetterMarks, Origin};

/// One letter with its tombstone and its new state.
struct PlannedErasure {
    number: u64,
    stone: CopyRecord,
    from: Origin,
    state: StateRecord,
    is_edited: bool,
}

/// Erases letters, except those in a replay. Durable on return.
pub(super) fn erase_letters(
    writer: &mut LetterWriter,
    order: &EraseOrder,
    ids: &[u64],
    now: Time,
) -> Result<Vec<EraseAnswer>, EngineError> {
    writer.cache().check_loaded()?;
    let deadline = Instant::now() + WAIT_MAX;
    let mut answers: Vec<EraseAnswer> = Vec::with_capacity(ids.len());
    // Letters of a transaction whose outcome is unknown.
    let mut tried: HashSet<u64> = HashSet::new();
    while answers.len() < ids.len() {
        writer.begin(deadline)?;
        let (mut part, mut planned) = (Vec::new(), Vec::<PlannedErasure>::new());
        for number in &ids[answers.len()..] {
            if planned.len() >= BATCH_MAX {
                break;
            }
            let entry = writer.cache().lock().index.get(*number).cloned();
            let state = entry.as_ref().and_then(LetterEntry::state);
            let refusal = state.map_or(Some(EraseAnswer::NotFound), EraseAnswer::refusal);
            part.push(match (refusal, entry) {
                (Some(EraseAnswer::Already), _) if tried.remove(number) => EraseAnswer::Done,
                (Some(refusal), _) => refusal,
                _ if planned.iter().any(|other| other.number == *number) => EraseAnswer::Already,
                (None, Some(entry)) => {
                    planned.push(plan_erasure(writer, *number, &entry, order, now)?);
                    EraseAnswer::Done
                }
                (None, None) => EraseAnswer::NotFound,
            });
        }
        match publish_erasures(writer, order, &planned, deadline)? {
            Published::All => answers.append(&mut part),
            Published::Refused(number) => {
                let what = format!("the broker refuses the tombstone of letter {number}");
                return Err(EngineError::Unavailable(what));
            }
            Published::Unknown => tried.extend(planned.iter().map(|erasure| erasure.number)),
        }
    }
    Ok(answers)
}

fn plan_erasure(
    writer: &LetterWriter,
    number: u64,
    entry: &LetterEntry,
    order: &EraseOrder,
    now: Time,
) -> Result<PlannedErasure, EngineError> {
    let content = writer.cache().content(entry.at()).map_err(|error| unreadable(&error))?;
    let message = match &content {
        Some(content) => content.message.clone(),
        None => stand_in(number)?,
    };
    let message = tombstone(&message, order, now);
    let message = message.map_err(|error| EngineError::Damaged(error.to_string()))?;
    let topic =
        content.as_ref().map_or_else(|| writer.topics().source.as_str().into(), |c| Arc::clone(&c.topic));
    let meta = content.as_ref().map(|content| content.meta).unwrap_or_default();
    let marks = LetterMarks {
        cut: None,
        moved: true,
        group: content.as_ref().map(|content| untitled(content.group.clone())),
        options: content.as_ref().and_then(|content| content.options.clone()),
    };
    let stone = CopyRecord {
        message,
        // Keep the generation, or it would count as another letter.
        meta: redrive_core::Meta { replays: entry.generation(), ..meta },
        history: content.as_ref().map(|content| content.history.without_texts()).unwrap_or_default(),
        origin: Origin::of_number(topic, number),
        due: None,
        reason: entry.reason(),
        dead_at: Some(entry.dead_at()),
        job: entry.job(),
        marks,
    };
    let (place, jobs) = (entry.place(), entry.jobs().to_vec());
    let dlq = writer.topics().dlq.as_str().into();
    let from = Origin { topic: dlq, partition: place.partition(), offset: place.offset() };
    let state = StateRecord { generation: entry.generation(), is: LetterState::Erased, jobs, at: now };
    let is_edited = writer.cache().lock().index.edited(number).is_some();
    Ok(PlannedErasure { number, stone, from, state, is_edited })
}

fn publish_erasures(
    writer: &mut LetterWriter,
    order: &EraseOrder,
    planned: &[PlannedErasure],
    deadline: Instant,
) -> Result<Published, EngineError> {
    if planned.is_empty() {
        return writer.sure_of_nothing(deadline);
    }
    let topics = Arc::clone(writer.topics());
    let (mut records, mut of) = (Vec::with_capacity(planned.len() * 2), Vec::new());
    for PlannedErasure { number, stone, from, state, is_edited } in planned {
        records.push(Outgoing {
            topic: &topics.dlq,
            partition: Some(from.partition),
            key: None,
            payload: None,
            headers: Some(record::headers(stone, Some(from))),
        });
        let stated = |key: String, payload: Option<Vec<u8>>| Outgoing {
            topic: &topics.dlq_state,
            partition: writer.partition(&topics.dlq_state, (*number >> 48) as i32),
            key: Some(key.into_bytes()),
            payload,
            headers: None,
        };
        let value = state.to_json_by(Some(&order.by));
        records.push(stated(StateRecord::key(*number), Some(value)));
        if *is_edited {
            records.push(stated(EditRecord::key(*number), None));
        }
        of.extend(std::iter::repeat_n(*number, records.len() - of.len()));
    }
    let (published, ends): (Published, HashMap<i32, i64>) = writer.commit(&records, &of, deadline)?;
    if matches!(published, Published::All) && !writer.has_read(&ends, deadline) {
        // It is committed anyway, so update the index directly.
        let mut inner = writer.cache().lock();
        for erasure in planned {
            inner.state_is(erasure.number, &erasure.state);
            inner.edited(erasure.number, None);
        }
    }
    Ok(published)
}
