//! Determines where newly assigned partitions begin: at the committed offset, with what is done beyond it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use redrive::internal::engine::completion::CompletionSet;

use crate::commit::progress::{CommitNote, CommitStanding, apply_chunk, note, read_chunk_key};
use crate::consume::begin;
use crate::consume::callbacks::ConsumerCallbacks;
use crate::consume::growth;
use crate::consume::mailbox::LaneStart;
use crate::consume::plan::{ASK_MAX, AssignFault, ReadPlan};
use crate::consume::room::LookAheadLimit;
use crate::crash::suspects::Suspected;
use crate::duplicates::died::Died;
use crate::options::GroupStart;
use crate::record::RecordReader;
use crate::topics::LaneKind;
use crate::topics::scan::{self, Scan, Span};

/// How many offsets at the end of a partition of `T.DLQ` are searched for its last letter.
const TAIL_MAX: i64 = 1_000;

/// The result of beginning an assignment.
#[derive(Debug)]
pub struct Begun {
    pub lanes: Vec<LaneStart>,
    /// How many partitions each topic has now.
    pub partitions: HashMap<Arc<str>, i32>,
    /// Where the letters of these partitions end.
    pub letter_ends: Vec<(i32, i64)>,
    /// The last letters of the earlier owners.
    pub died: Died,
    /// Whether nothing records yet that the pipeline has run.
    pub is_first: bool,
    /// Whether there are partitions that were never assigned to any member.
    pub has_orphans: bool,
    /// Messages that wait in the tiers while the source has new partitions and keys are ordered.
    pub overtaken: u64,
}

/// Names a partition.
type Name = (Arc<str>, i32);
/// What is done of each partition, and which of its bitmaps are in `T.progress`.
type Completions = HashMap<Name, (CompletionSet, Option<(u64, u64)>)>;

pub fn begin(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    plan: &ReadPlan,
    assigned: &TopicPartitionList,
) -> Result<Begun, AssignFault> {
    let partitions = growth::follow(consumer, plan)?;
    let has_orphans = growth::has_orphans(consumer, plan, assigned)?;
    let overtaken = growth::overtaken(consumer, plan, assigned)?;
    let names = names(plan, assigned);
    let letter_ends = letter_ends(consumer, plan, &names, &partitions)?;
    let letter_ends = if plan.ordered { readable_ends(plan, letter_ends)? } else { letter_ends };
    let mut asked = TopicPartitionList::with_capacity(names.len());
    for (topic, partition) in &names {
        asked.add_partition(topic, *partition);
    }
    let committed = scan::committed(consumer, &asked)?;
    let mut notes: HashMap<Name, (u64, CommitNote)> = HashMap::new();
    for element in committed.elements() {
        element.error()?;
        if let Offset::Offset(offset) = element.offset()
            && let Some((topic, _)) = plan.topics.get_key_value(element.topic())
        {
            let offset = offset.max(0) as u64;
            let read = CommitNote::read(element.metadata(), offset);
            notes.insert((Arc::clone(topic), element.partition()), (offset, read));
        }
    }
    let fresh: Vec<Name> = names.iter().filter(|name| !notes.contains_key(*name)).cloned().collect();
    if !fresh.is_empty() {
        let first = first_offsets(consumer, plan, &fresh)?;
        commit_first(consumer, &first)?;
        for (name, offset) in first {
            notes.insert(name, (offset, CommitNote { taken: offset, clean: true, ..CommitNote::default() }));
        }
    }
    let mut starts = Completions::new();
    for (name, (offset, read)) in &notes {
        let mut done = CompletionSet::starting_at(*offset);
        for (first, count) in &read.runs {
            (*first..*first + *count).for_each(|number| {
                done.insert(number);
            });
        }
        starts.insert(name.clone(), (done, None));
    }
    if notes.values().any(|(_, read)| read.more) {
        read_chunks(plan, &mut starts)?;
    }
    let died = died(plan, &notes, &letter_ends)?;
    let is_first = consumer.fetch_watermarks(&plan.progress, 0, ASK_MAX)?.1 == 0;
    let sources = names.iter().filter(|(topic, _)| *topic == plan.source).count().max(1);
    let tiers = (names.len().saturating_sub(sources)).max(1);
    let lanes = names
        .into_iter()
        .filter_map(|name| {
            let kind = *plan.topics.get(&name.0)?;
            let room = match kind {
                LaneKind::Source => LookAheadLimit::new(
                    (plan.source_records / sources).max(64),
                    (plan.source_bytes / sources).max(1 << 20),
                ),
                // Their bytes are bounded by the look-ahead, which spills them to a file.
                LaneKind::Tier | LaneKind::Replay => {
                    let room = LookAheadLimit::new((plan.tier_records / tiers).max(1_000), usize::MAX);
                    if plan.ordered { room.lifted() } else { room }
                }
            };
            let (_, read) = notes.remove(&name)?;
            let (done, written) = starts.remove(&name)?;
            Some(LaneStart {
                kind,
                topic: name.0,
                partition: name.1,
                done,
                suspected: Suspected::after(kind, &read),
                written,
                room: Arc::new(room),
            })
        })
        .collect();
    Ok(Begun { lanes, partitions, letter_ends, died, is_first, has_orphans, overtaken })
}

/// Reads the last letters of partitions whose owners did not end cleanly: those may have left both a letter and its
/// record.
fn died(
    plan: &ReadPlan,
    notes: &HashMap<Name, (u64, CommitNote)>,
    ends: &[(i32, i64)],
) -> Result<Died, AssignFault> {
    let unclean: BTreeSet<i32> = notes
        .iter()
        .filter(|(_, (_, note))| note.is_ours && !note.clean)
        .map(|((_, partition), _)| *partition)
        .collect();
    // The dead-letter topic may have fewer partitions than the source.
    let count = ends.iter().map(|(partition, _)| partition + 1).max().unwrap_or(1);
    let is_needed = |(partition, _): &&(i32, i64)| {
        unclean.contains(partition) || unclean.iter().any(|source| *source >= count)
    };
    let ends: Vec<(i32, i64)> = ends.iter().filter(is_needed).copied().collect();
    let reader = RecordReader::new(&plan.description);
    Ok(Died::read(&plan.cluster, &reader, &plan.letters, &ends)?)
}

/// Returns where the letters end that earlier owners may have written for these partitions. They have to be known
/// before their records start again.
fn letter_ends(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    plan: &ReadPlan,
    names: &[Name],
    counts: &HashMap<Arc<str>, i32>,
) -> Result<Vec<(i32, i64)>, KafkaError> {
    let count = counts.get(plan.letters.as_str()).copied().unwrap_or(0);
    let partitions: BTreeSet<i32> = names.iter().map(|(_, partition)| *partition % count.max(1)).collect();
    let mut ends = Vec::new();
    for partition in partitions.into_iter().filter(|partition| *partition < count) {
        let (low, end) = consumer.fetch_watermarks(&plan.letters, partition, ASK_MAX)?;
        if low < end {
            ends.push((partition, end));
        }
    }
    Ok(ends)
}

/// Returns one past the last readable letter of each partition. An import leaves a transaction marker at the end, which
/// no consumer receives: reading up to it would never end.
fn readable_ends(plan: &ReadPlan, ends: Vec<(i32, i64)>) -> Result<Vec<(i32, i64)>, AssignFault> {
    if ends.is_empty() {
        return Ok(ends);
    }
    let scan = Scan::new(&plan.cluster)?;
    let mut readable: BTreeMap<i32, i64> = BTreeMap::new();
    // One of the last two is nearly always a letter.
    for tail in [2, TAIL_MAX] {
        let unread = ends.iter().filter(|(partition, _)| !readable.contains_key(partition));
        let span = |(partition, end): &(i32, i64)| Span {
            topic: plan.letters.clone(),
            partition: *partition,
            low: 0,
            end: *end,
            committed: None,
        };
        let unread: Vec<Span> = unread.map(span).collect();
        if unread.is_empty() {
            break;
        }
        scan.read_tails(&unread, tail, |record| {
            let end = readable.entry(record.partition()).or_default();
            *end = (*end).max(record.offset() + 1);
        })?;
    }
    Ok(readable.into_iter().collect())
}

fn names(plan: &ReadPlan, assigned: &TopicPartitionList) -> Vec<Name> {
    let known = assigned.elements().into_iter().filter_map(|element| {
        let (topic, _) = plan.topics.get_key_value(element.topic())?;
        Some((Arc::clone(topic), element.partition()))
    });
    known.collect()
}

/// Returns where partitions begin that have no committed offset.
fn first_offsets(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    plan: &ReadPlan,
    fresh: &[Name],
) -> Result<Vec<(Name, u64)>, AssignFault> {
    let latest = match plan.start {
        _ if !fresh.iter().any(|(topic, _)| *topic == plan.source) => false,
        // A partition that was added later is read from its beginning: all of its records came after the first start.
        _ if growth::any_committed(consumer, &plan.source)? => false,
        start => {
            if let Some(ran) = begin::ran_before(&plan.cluster, &plan.owned)? {
                return Err(AssignFault::RanBefore(ran));
            }
            match start {
                Some(GroupStart::Latest) => true,
                Some(GroupStart::Earliest) => false,
                None => return Err(AssignFault::NoStart { topic: plan.source.to_string() }),
            }
        }
    };
    let mut first = Vec::with_capacity(fresh.len());
    for (topic, partition) in fresh {
        let (low, high) = consumer.fetch_watermarks(topic, *partition, ASK_MAX)?;
        let offset = if latest && *topic == plan.source { high } else { low };
        first.push(((Arc::clone(topic), *partition), offset.max(0) as u64));
    }
    Ok(first)
}

/// Commits where partitions begin at once, so that the start is decided only once.
fn commit_first(
    consumer: &BaseConsumer<ConsumerCallbacks>,
    first: &[(Name, u64)],
) -> Result<(), AssignFault> {
    let mut list = TopicPartitionList::with_capacity(first.len());
    for ((topic, partition), offset) in first {
        let mut element = list.add_partition(topic, *partition);
        element.set_offset(Offset::Offset(offset.cast_signed()))?;
        element.set_metadata(note(&CommitStanding::clean(*offset), &CompletionSet::starting_at(*offset)).0);
    }
    consumer.commit(&list, CommitMode::Sync)?;
    Ok(())
}

/// Reads `T.progress` to its end and marks the offsets of its bitmaps as done.
fn read_chunks(plan: &ReadPlan, starts: &mut Completions) -> Result<(), AssignFault> {
    let mut config = plan.reader.clone();
    config.set("auto.offset.reset", "earliest");
    let reader: BaseConsumer = config.create()?;
    let metadata = reader.fetch_metadata(Some(&plan.progress), ASK_MAX)?;
    let mut list = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(rdkafka::metadata::MetadataTopic::partitions) {
        list.add_partition_offset(&plan.progress, partition.id(), Offset::Beginning)?;
    }
    let mut open = list.count();
    reader.assign(&list)?;
    let began = Instant::now();
    let mut latest: HashMap<(Name, u64), Vec<u8>> = HashMap::new();
    while open > 0 && began.elapsed() < ASK_MAX * 3 {
        match reader.poll(Duration::from_millis(200)) {
            None => {}
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(record)) => {
                let key = record.key().and_then(|key| std::str::from_utf8(key).ok());
                let Some((topic, partition, chunk)) = key.and_then(read_chunk_key) else { continue };
                let Some((topic, _)) = plan.topics.get_key_value(topic) else { continue };
                let name = ((Arc::clone(topic), partition), chunk);
                match record.payload() {
                    Some(bytes) => drop(latest.insert(name, bytes.to_vec())),
                    None => drop(latest.remove(&name)),
                }
            }
        }
    }
    for ((name, chunk), bytes) in latest {
        if let Some((done, written)) = starts.get_mut(&name) {
            apply_chunk(done, chunk, &bytes);
            let (first, last) = written.unwrap_or((chunk, chunk));
            *written = Some((first.min(chunk), last.max(chunk)));
        }
    }
    Ok(())
}
