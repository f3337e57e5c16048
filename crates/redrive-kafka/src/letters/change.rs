//! What people do to letters: replay, discard, undo. Each change is checked against everything that was committed
//! before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use redrive::internal::engine::letter::{REPLAYS_MAX, ReplayTarget};
use redrive::internal::engine::{EngineError, LetterChange, LetterState, OnBehalf, ReplayAnswer, ReplayJob};
use redrive_core::Time;

use super::content::Content;
use super::entry::LetterEntry;
use super::retention::can_be_undone;
use super::state::StateRecord;
use super::transaction::Outgoing;
use super::view::unreadable;
use super::writer::{BATCH_BYTES, BATCH_MAX, LetterWriter, Published, WAIT_MAX};
use crate::record::{self, CopyRecord, LetterMarks, Origin};
use crate::topics::Topics;

/// One letter with its copy and its new state.
struct PlannedChange {
    number: u64,
    copy: Option<(Box<CopyRecord>, Origin)>,
    state: StateRecord,
}

/// Requeues letters, each at most once per job. Durable on return.
pub(super) fn replay(
    writer: &mut LetterWriter,
    job: &ReplayJob,
    ids: &[u64],
    asked: OnBehalf<'_>,
) -> Result<Vec<ReplayAnswer>, EngineError> {
    let OnBehalf { at: now, by } = asked;
    writer.cache().check_loaded()?;
    let deadline = Instant::now() + WAIT_MAX;
    let mut answers: Vec<ReplayAnswer> = Vec::with_capacity(ids.len());
    let mut refused: HashSet<u64> = HashSet::new();
    // Letters of a transaction whose outcome is unknown.
    let mut tried: HashSet<u64> = HashSet::new();
    while answers.len() < ids.len() {
        writer.begin(deadline)?;
        let rest = &ids[answers.len()..];
        let (mut part, changes) = plan_replay(writer, job, rest, now, &refused)?;
        for (id, answer) in rest.iter().zip(&mut part) {
            if *answer == ReplayAnswer::Already && tried.remove(id) {
                *answer = ReplayAnswer::Replayed;
            }
        }
        match publish(writer, by, job.target, &changes, deadline)? {
            Published::All => answers.append(&mut part),
            Published::Refused(number) => drop(refused.insert(number)),
            Published::Unknown => tried.extend(changes.iter().map(|change| change.number)),
        }
    }
    Ok(answers)
}

/// Returns answers for as many of `ids` as fit into one transaction, and the changes of that transaction.
fn plan_replay(
    writer: &LetterWriter,
    job: &ReplayJob,
    ids: &[u64],
    now: Time,
    refused: &HashSet<u64>,
) -> Result<(Vec<ReplayAnswer>, Vec<PlannedChange>), EngineError> {
    let (mut answers, mut changes, mut bytes) = (Vec::new(), Vec::<PlannedChange>::new(), 0);
    for number in ids {
        if changes.len() >= BATCH_MAX || bytes >= BATCH_BYTES {
            break;
        }
        let entry = writer.cache().lock().index.get(*number).cloned();
        let answer = match entry {
            _ if changes.iter().any(|change| change.number == *number) => ReplayAnswer::Already,
            None => ReplayAnswer::NotFound,
            Some(entry) => match refusal(&entry, job) {
                Some(refusal) => refusal,
                // A truncated letter would be delivered as if it were whole.
                None if refused.contains(number) || entry.is_cut() => ReplayAnswer::Damaged,
                None => match replayed(writer, *number, &entry, job, now)? {
                    Some((change, size)) => {
                        bytes += size;
                        changes.push(change);
                        ReplayAnswer::Replayed
                    }
                    None => ReplayAnswer::Damaged,
                },
            },
        };
        answers.push(answer);
    }
    Ok((answers, changes))
}

fn replayed(
    writer: &LetterWriter,
    number: u64,
    entry: &LetterEntry,
    job: &ReplayJob,
    now: Time,
) -> Result<Option<(PlannedChange, usize)>, EngineError> {
    let content = writer.cache().content(entry.at()).map_err(|error| unreadable(&error))?;
    let Some(content) = content else { return Ok(None) };
    let edited = writer.cache().edited_message(number, entry).map_err(|error| unreadable(&error))?;
    let content = Content { message: edited.unwrap_or(content.message), ..content };
    let size = content.message.wire().len() + content.history.raw().len();
    let copy = CopyRecord {
        message: content.message,
        meta: content.meta.replayed(),
        history: content.history,
        origin: Origin::of_number(content.topic, number),
        due: Some(job.due),
        reason: None,
        dead_at: None,
        job: Some(job.id),
        marks: LetterMarks::default(),
    };
    let place = entry.place();
    let topic = writer.topics().dlq.as_str().into();
    let from = Origin { topic, partition: place.partition(), offset: place.offset() };
    let mut jobs = entry.jobs().to_vec();
    jobs.push(job.id);
    let state = StateRecord { generation: entry.generation(), is: LetterState::Replaying, jobs, at: now };
    Ok(Some((PlannedChange { number, copy: Some((Box::new(copy), from)), state }, size)))
}

/// Discards open letters, or undoes a discard. Durable on return; `false` if the state did not allow it.
pub(super) fn change_letters(
    writer: &mut LetterWriter,
    change: LetterChange,
    ids: &[u64],
    asked: OnBehalf<'_>,
) -> Result<Vec<bool>, EngineError> {
    let OnBehalf { at: now, by } = asked;
    writer.cache().check_loaded()?;
    let deadline = Instant::now() + WAIT_MAX;
    let (from, to) = change.states();
    let mut answers: Vec<bool> = Vec::with_capacity(ids.len());
    let mut tried: HashSet<u64> = HashSet::new();
    while answers.len() < ids.len() {
        writer.begin(deadline)?;
        let mut changes: Vec<PlannedChange> = Vec::new();
        let mut part = Vec::new();
        for number in &ids[answers.len()..] {
            if changes.len() >= BATCH_MAX {
                break;
            }
            let entry = writer.cache().lock().index.get(*number).cloned();
            let state = entry.as_ref().and_then(LetterEntry::state);
            let chosen = changes.iter().any(|change| change.number == *number);
            let done = state == Some(to) && tried.remove(number);
            let may = |entry: &LetterEntry| change != LetterChange::Undo || can_be_undone(entry, now);
            if let Some(entry) = entry.filter(|entry| state == Some(from) && !chosen && may(entry)) {
                let (generation, jobs) = (entry.generation(), entry.jobs().to_vec());
                let state = StateRecord { generation, is: to, jobs, at: now };
                changes.push(PlannedChange { number: *number, copy: None, state });
                part.push(true);
            } else {
                part.push(done);
            }
        }
        match publish(writer, by, ReplayTarget::default(), &changes, deadline)? {
            Published::All => answers.append(&mut part),
            Published::Refused(number) => {
                let what = format!("the broker refuses the state of letter {number}");
                return Err(EngineError::Unavailable(what));
            }
            Published::Unknown => tried.extend(changes.iter().map(|change| change.number)),
        }
    }
    Ok(answers)
}

fn publish(
    writer: &mut LetterWriter,
    by: Option<&str>,
    target: ReplayTarget,
    changes: &[PlannedChange],
    deadline: Instant,
) -> Result<Published, EngineError> {
    if changes.is_empty() {
        return writer.sure_of_nothing(deadline);
    }
    let topics = Arc::clone(writer.topics());
    let (mut records, mut of) = (Vec::with_capacity(changes.len() * 2), Vec::new());
    for change in changes {
        if let Some((copy, from)) = &change.copy {
            records.push(outgoing(writer, target, &topics, copy, from));
            of.push(change.number);
        }
        records.push(Outgoing {
            topic: &topics.dlq_state,
            // The partition of its source record, as with copies; successes are recorded there too.
            partition: writer.partition(&topics.dlq_state, (change.number >> 48) as i32),
            key: Some(StateRecord::key(change.number).into_bytes()),
            payload: Some(change.state.to_json_by(by)),
            headers: None,
        });
        of.push(change.number);
    }
    let (published, ends) = writer.commit(&records, &of, deadline)?;
    if matches!(published, Published::All) {
        wait_until_read(writer, &ends, changes, deadline);
    }
    Ok(published)
}

fn outgoing<'a>(
    writer: &LetterWriter,
    target: ReplayTarget,
    topics: &'a Topics,
    copy: &CopyRecord,
    from: &Origin,
) -> Outgoing<'a> {
    let topic = match target {
        ReplayTarget::Pipeline => &topics.replay,
        ReplayTarget::Source => &topics.source,
    };
    Outgoing {
        topic,
        partition: writer.partition(topic, copy.origin.partition),
        key: copy.message.key().map(<[u8]>::to_vec),
        payload: copy.message.payload().map(<[u8]>::to_vec),
        headers: Some(record::headers(copy, Some(from))),
    }
}

/// Waits until the mirror has read the transaction, so that the next query shows it.
fn wait_until_read(
    writer: &LetterWriter,
    ends: &HashMap<i32, i64>,
    changes: &[PlannedChange],
    deadline: Instant,
) {
    if !writer.has_read(ends, deadline) {
        // It is committed anyway, so update the index directly.
        let mut inner = writer.cache().lock();
        changes.iter().for_each(|change| inner.index.state_is(change.number, &change.state));
    }
}

fn refusal(entry: &LetterEntry, job: &ReplayJob) -> Option<ReplayAnswer> {
    let state = entry.state()?;
    let replays = entry.replays();
    if entry.jobs().contains(&job.id) {
        Some(ReplayAnswer::Already)
    } else if state != LetterState::Open {
        Some(ReplayAnswer::NotOpen(state))
    } else if replays >= REPLAYS_MAX && !job.force {
        Some(ReplayAnswer::TooOften { replays })
    } else {
        None
    }
}
