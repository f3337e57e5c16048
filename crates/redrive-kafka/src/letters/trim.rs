//! Deletes resolved letters from `T.DLQ`, so that the start-up time depends on the open ones only.
//!
//! No exclusive access is needed: a success has no later state, a discard can no longer be undone by the time its
//! letter is deleted, and a rewritten letter is the same letter. The records are deleted first and then their states,
//! because a record without a state would be an open letter.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use redrive::internal::engine::{EngineError, LetterState};
use redrive_core::Time;

use super::cache::LetterCache;
use super::edit_record::EditRecord;
use super::entry::{DlqPosition, LetterEntry};
use super::index::LearnedFrom;
use super::retention::{Rules, Stretch};
use super::state::StateRecord;
use crate::Cluster;
use crate::client::problems::unavailable;
use crate::client::reports::collect_reports;
use crate::record::{CopyRecord, LetterMarks, Origin, headers};
use crate::topics::scan::Scan;
use crate::topics::{ANSWER_WITHIN, Topics, wait};

const FLUSH_MAX: Duration = Duration::from_secs(30);
/// Records in flight at once.
const IN_FLIGHT_MAX: i32 = 1_000;

/// How long a caller waits until the tombstones of erased letters are read, and how often that is checked.
const TOMBSTONES_READ_MAX: Duration = Duration::from_secs(10);
const TOMBSTONES_LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a trimming waits until what it has written is read.
const READ_MAX: Duration = Duration::from_secs(10);
/// How often letters are written again in one trimming: more than once only behind tombstones that were overtaken.
const ROUNDS_MAX: usize = 3;

/// The result of trimming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Trimmed {
    /// Offsets that were deleted from the front of partitions.
    pub deleted: u64,
    /// Letters that were rewritten to the end.
    pub moved: u64,
    /// Letters that are gone.
    pub gone: u64,
}

/// Trims the letters of one pipeline.
pub struct LetterTrimmer {
    cluster: Cluster,
    topics: Topics,
    cache: Arc<LetterCache>,
    rules: Rules,
    /// States without a letter as of the last run. Those that still have none are left over from an interrupted
    /// trimming.
    orphans: HashSet<u64>,
}

impl std::fmt::Debug for LetterTrimmer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LetterTrimmer").field("topic", &self.topics.dlq).finish_non_exhaustive()
    }
}

/// Positions of written records, by letter number.
#[derive(Default)]
struct TrimOffsets(Mutex<Vec<(u64, i32, i64)>>);

impl ClientContext for TrimOffsets {}

impl ProducerContext for TrimOffsets {
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<u64>) {
        if let Ok(message) = result {
            let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            places.push((*number, message.partition(), message.offset()));
        }
    }
}

impl LetterTrimmer {
    pub(super) fn new(cluster: &Cluster, topics: &Topics, cache: &Arc<LetterCache>) -> Self {
        let (cluster, topics, cache) = (cluster.clone(), topics.clone(), Arc::clone(cache));
        Self { cluster, topics, cache, rules: Rules::default(), orphans: HashSet::new() }
    }

    /// Replaces the default rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Trims once for a caller who waits for it: a single resolved letter is reason enough to rewrite old ones. First
    /// waits until the tombstones of erased letters are read, or their old records would count.
    pub fn run_eagerly(&mut self, now: Time) -> Result<Trimmed, EngineError> {
        let until = Instant::now() + TOMBSTONES_READ_MAX;
        while !self.are_tombstones_read() && Instant::now() < until {
            std::thread::sleep(TOMBSTONES_LOOK_EVERY);
        }
        let usual = std::mem::replace(&mut self.rules, Rules::eager());
        let trimmed = self.run(now);
        self.rules = usual;
        trimmed
    }

    fn are_tombstones_read(&self) -> bool {
        let is_erased = |state| state == LetterState::Erased;
        let inner = self.cache.lock();
        inner.index.after(None).all(|(_, state, entry)| !is_erased(state) || entry.is_tombstone())
    }

    /// Trims once. Does nothing while letters are still being read.
    pub fn run(&mut self, now: Time) -> Result<Trimmed, EngineError> {
        if !self.cache.lock().loaded {
            return Ok(Trimmed::default());
        }
        let (mut trimmed, mut rules, mut written) = (Trimmed::default(), self.rules, HashMap::new());
        for round in 0..ROUNDS_MAX {
            let again = {
                // An erasure that came in between has its tombstone before the letters that were written again.
                self.await_letters(&written);
                let stretches = self.stretches()?;
                let inner = self.cache.lock();
                let mut again: BTreeSet<u64> = inner.index.overtaken_tombstones().into_iter().collect();
                if !again.is_empty() {
                    rules = Rules { moves_max: rules.moves_max, ..Rules::eager() };
                } else if round > 0 {
                    break;
                }
                again.extend(
                    rules.plan(&inner.index, &stretches, now).into_iter().flat_map(|leave| leave.moves),
                );
                again
            };
            if again.is_empty() {
                break;
            }
            let (moved, ends) = self.write_again(&again)?;
            trimmed.moved += moved;
            written = ends;
        }
        let stretches = self.stretches()?;
        let plan = rules.plan(&self.cache.lock().index, &stretches, now);
        let low = |partition: i32| stretches.iter().find(|s| s.partition == partition).map_or(0, |s| s.low);
        let cuts: HashMap<i32, i64> =
            plan.iter().map(|leave| (leave.partition, leave.cut.max(low(leave.partition)))).collect();
        let deleted: Vec<(i32, i64)> =
            cuts.iter().filter(|(p, cut)| **cut > low(**p)).map(|(p, cut)| (*p, *cut)).collect();
        if !deleted.is_empty() {
            self.delete(&deleted)?;
            trimmed.deleted = deleted.iter().map(|(p, cut)| (cut - low(*p)).cast_unsigned()).sum();
        }
        trimmed.gone = self.forget(&cuts, now)?;
        Ok(trimmed)
    }

    fn stretches(&self) -> Result<Vec<Stretch>, EngineError> {
        let spans = Scan::new(&self.cluster)?.spans(&self.topics.dlq)?;
        let inner = self.cache.lock();
        let stretch = |span: &crate::topics::scan::Span| {
            let next = inner.letters_next.get(&span.partition).copied().unwrap_or(span.low);
            Stretch { partition: span.partition, low: span.low, next: next.clamp(span.low, span.end) }
        };
        Ok(spans.iter().map(stretch).collect())
    }

    /// Waits until this process has read `T.DLQ` up to these offsets; for what was not read in time there is a next time.
    fn await_letters(&self, written: &HashMap<i32, i64>) {
        let until = Instant::now() + READ_MAX;
        self.cache.wait(until, |inner| {
            let is_read = |(partition, offset): (&i32, &i64)| {
                inner.letters_next.get(partition).is_some_and(|next| next > offset)
            };
            inner.closing || written.iter().all(is_read)
        });
    }

    /// Writes letters again at the ends of their partitions; how many, and the last offset in each partition.
    fn write_again(&self, numbers: &BTreeSet<u64>) -> Result<(u64, HashMap<i32, i64>), EngineError> {
        let producer = self.producer()?;
        let mut copies: HashMap<u64, CopyRecord> = HashMap::new();
        for number in numbers {
            let Some((copy, place)) = self.copy(*number)? else { continue };
            let topic = self.topics.dlq.as_str().into();
            let from = Origin { topic, partition: place.partition(), offset: place.offset() };
            let mut record =
                BaseRecord::<[u8], [u8], Box<u64>>::with_opaque_to(&self.topics.dlq, Box::new(*number))
                    .partition(place.partition())
                    .headers(headers(&copy, Some(&from)));
            (record.key, record.payload) = (copy.message.key(), copy.message.payload());
            send(&producer, record)?;
            copies.insert(*number, copy);
        }
        flush(&producer)?;
        let places =
            std::mem::take(&mut *producer.context().0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut inner = self.cache.lock();
        let mut ends = HashMap::new();
        for (number, partition, offset) in &places {
            let end = ends.entry(*partition).or_insert(*offset);
            *end = (*end).max(*offset);
            if let Some(copy) = copies.get(number) {
                inner.parked(DlqPosition::new(*partition, *offset), copy, LearnedFrom::Acknowledgement);
            }
        }
        Ok((places.len() as u64, ends))
    }

    /// Returns the copy to rewrite a letter with, and its current position; `None` if its bytes are damaged.
    fn copy(&self, number: u64) -> Result<Option<(CopyRecord, DlqPosition)>, EngineError> {
        let entry = self.cache.lock().index.get(number).cloned();
        // Of an erased letter only the tombstone is written again, once it is read.
        let is_wanted =
            |entry: &LetterEntry| entry.is_tombstone() || entry.state() != Some(LetterState::Erased);
        let Some(entry) = entry.filter(is_wanted) else { return Ok(None) };
        let content = self.cache.content(entry.at()).map_err(|error| super::view::unreadable(&error))?;
        let Some(content) = content else { return Ok(None) };
        let bytes = content.message.payload().map_or(0, <[u8]>::len) as u64;
        let copy = CopyRecord {
            message: content.message,
            meta: content.meta,
            history: content.history,
            origin: Origin::of_number(content.topic, number),
            due: None,
            reason: entry.reason(),
            dead_at: Some(entry.dead_at()),
            job: entry.job(),
            marks: LetterMarks {
                cut: entry.is_cut().then_some(bytes),
                moved: true,
                group: Some(content.group),
                options: content.options,
            },
        };
        Ok(Some((copy, entry.place())))
    }

    fn delete(&self, cuts: &[(i32, i64)]) -> Result<(), EngineError> {
        let mut list = TopicPartitionList::new();
        for (partition, cut) in cuts {
            list.add_partition_offset(&self.topics.dlq, *partition, Offset::Offset(*cut)).map_err(failed)?;
        }
        let admin: AdminClient<DefaultClientContext> = self.cluster.admin().create().map_err(failed)?;
        let options = AdminOptions::new().operation_timeout(Some(ANSWER_WITHIN));
        let deleted = wait(admin.delete_records(&list, &options)).map_err(failed)?;
        for element in deleted.elements() {
            element.error().map_err(failed)?;
        }
        Ok(())
    }

    /// Deletes the states of letters of which no record is left. Returns how many.
    fn forget(&mut self, cuts: &HashMap<i32, i64>, now: Time) -> Result<u64, EngineError> {
        let (mut gone, orphans) = {
            let inner = self.cache.lock();
            let orphans: HashSet<u64> = inner.index.orphans().collect();
            (self.rules.gone(&inner.index, cuts, now), orphans)
        };
        gone.extend(orphans.intersection(&self.orphans));
        self.orphans = orphans;
        if gone.is_empty() {
            return Ok(0);
        }
        let partitions = Scan::new(&self.cluster)?.spans(&self.topics.dlq_state)?.len().max(1) as u64;
        let producer = self.producer()?;
        for number in &gone {
            let is_edited = self.cache.lock().index.edited(*number).is_some();
            let edit = is_edited.then(|| EditRecord::key(*number));
            let partition = ((*number >> 48) % partitions) as i32;
            // Delete the edits first: a letter that is deleted before its edits would leave an orphan forever.
            for key in edit.into_iter().chain([StateRecord::key(*number)]) {
                let topic = &self.topics.dlq_state;
                let record = BaseRecord::<[u8], [u8], Box<u64>>::with_opaque_to(topic, Box::new(*number));
                send(&producer, record.partition(partition).key(key.as_bytes()))?;
            }
        }
        flush(&producer)?;
        let mut inner = self.cache.lock();
        gone.iter().for_each(|number| inner.index.remove(*number));
        Ok(gone.len() as u64)
    }

    fn producer(&self) -> Result<BaseProducer<TrimOffsets>, EngineError> {
        self.cluster.producer().create_with_context(TrimOffsets::default()).map_err(failed)
    }
}

fn send(
    producer: &BaseProducer<TrimOffsets>,
    record: BaseRecord<'_, [u8], [u8], Box<u64>>,
) -> Result<(), EngineError> {
    let until = Instant::now() + FLUSH_MAX;
    while producer.in_flight_count() > IN_FLIGHT_MAX && Instant::now() < until {
        collect_reports(producer);
    }
    producer.send(record).map_err(|(error, _)| failed(error))
}

/// Waits until everything is acknowledged.
fn flush(producer: &BaseProducer<TrimOffsets>) -> Result<(), EngineError> {
    producer.flush(FLUSH_MAX).map_err(failed)
}

#[expect(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn failed(error: KafkaError) -> EngineError {
    unavailable(&error)
}
