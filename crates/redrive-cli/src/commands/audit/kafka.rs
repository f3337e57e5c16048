//! Reads an audit from the topics, record by record: which ids were produced, have letters, or are pending. No
//! processor has to run.
//!
//! While a pipeline runs, its messages move from topic to topic. So letters are read before pending messages, and ids
//! that are still unaccounted for are looked up again.

use std::collections::HashMap;

use rdkafka::Message as _;
use rdkafka::message::BorrowedMessage;
use redrive::internal::engine::EngineError;
use redrive_kafka::record::{CopyRecord, Read, RecordReader};
use redrive_kafka::topics::scan::{Scan, Span};
use redrive_kafka::topics::{Topics, survey};
use redrive_kafka::{Cluster, KafkaPipeline};
use serde::Deserialize;

use super::Within;
use super::produced_ids::{Marks, ProducedIds};
use crate::config::Config;
use crate::exit::Failed;
use crate::service::engine_failed::engine_failed;
use crate::service::kafka;

/// The topics of one pipeline.
pub struct TopicRecords {
    cluster: Cluster,
    topics: Topics,
    reader: RecordReader,
    scan: Scan,
}

/// A letter as read from its topic.
struct Parked {
    id: String,
    generation: u32,
    /// Records of this generation; any beyond the first are twins.
    copies: u64,
}

/// A line of `T.DLQ.state`.
#[derive(Deserialize)]
struct AuditState {
    generation: u32,
    state: String,
}

impl TopicRecords {
    /// Opens the topics of a pipeline; `None` if it is not on Kafka.
    pub fn of(config: &Config, pipeline: &str) -> Result<Option<Self>, Failed> {
        if config.engine.kafka.is_none() {
            return Ok(None);
        }
        let pipelines = kafka::pipelines(config);
        let Some(found) = pipelines.iter().find(|one| one.name == pipeline) else {
            return Err(Failed::usage(format!("the configuration has no pipeline `{pipeline}`")));
        };
        Self::open(kafka::cluster(config)?, found).map(Some).map_err(|error| engine_failed(&error))
    }

    fn open(cluster: Cluster, pipeline: &KafkaPipeline) -> Result<Self, EngineError> {
        let topics = survey(&cluster, pipeline)?.topics;
        let scan = Scan::new(&cluster)?;
        Ok(Self { cluster, topics, reader: RecordReader::new(pipeline), scan })
    }

    pub fn source(&self) -> &str {
        &self.topics.source
    }

    /// Every id of the source within these times, and the ranges of offsets that retention deleted before they could be
    /// counted.
    pub fn produced(&self, within: Within) -> Result<(ProducedIds, Vec<String>), Failed> {
        let failed = |error| engine_failed(&error);
        let all = self.scan.spans(&self.topics.source).map_err(failed)?;
        let spans = self.scan.within(&all, within.since, within.until).map_err(failed)?;
        // If something older than the requested range still exists, nothing of the range was deleted.
        let is_lost = |(all, asked): &(&Span, &Span)| all.low > 0 && asked.low == all.low;
        let lost = all.iter().zip(&spans).filter(is_lost);
        let lost =
            lost.map(|(all, _)| format!("{}/{}/0..{}", all.topic, all.partition, all.low - 1)).collect();
        let (mut produced, mut full) = (ProducedIds::listed(), false);
        self.scan
            .read(
                &spans,
                |span| span.low,
                |record| full |= self.id(record).is_some_and(|id| !produced.add(&id)),
            )
            .map_err(failed)?;
        if full {
            return Err(Failed::usage("the topic has more ids than fit an audit")
                .hint("audit a part of it: --since 1d, or --since 2026-11-01 --until 2026-11-08"));
        }
        Ok((produced, lost))
    }

    /// The id of a fresh record of the source; `None` for a replayed letter, which was produced before.
    fn id(&self, record: &BorrowedMessage<'_>) -> Option<String> {
        match self.reader.read(record) {
            Ok(Read::Fresh(message, _)) => Some(message.id().to_owned()),
            Ok(Read::Copy(_)) => None,
            Err(unreadable) => Some(unreadable.rest.message.id().to_owned()),
        }
    }

    /// Marks ids that have letters. Returns the number of twins: second letters of one generation.
    pub fn letters(&self, produced: &mut ProducedIds) -> Result<u64, Failed> {
        let mut letters: HashMap<u64, Parked> = HashMap::new();
        self.read(
            &self.topics.dlq,
            |span| span.low,
            |record| {
                let Some(copy) = self.copy(record) else { return };
                let id = copy.message.id().to_owned();
                let generation = copy.meta.replays;
                let number = copy.origin.number();
                let first = || Parked { id: id.clone(), generation, copies: 0 };
                let parked = letters.entry(number).or_insert_with(first);
                if generation > parked.generation {
                    // A message that died again may have continued under another id.
                    *parked = Parked { id, generation, copies: 0 };
                }
                parked.copies += u64::from(generation == parked.generation);
            },
        )?;
        let mut states: HashMap<u64, AuditState> = HashMap::new();
        self.read(
            &self.topics.dlq_state,
            |span| span.low,
            |record| {
                let number = record.key().and_then(|key| std::str::from_utf8(key).ok()?.parse().ok());
                let state = record.payload().and_then(|line| serde_json::from_slice::<AuditState>(line).ok());
                match (number, state) {
                    (Some(number), Some(state)) => drop(states.insert(number, state)),
                    (Some(number), None) => drop(states.remove(&number)),
                    _ => {}
                }
            },
        )?;
        let mut twins = 0;
        for (number, parked) in &letters {
            twins += parked.copies.saturating_sub(1);
            let state = states.get(number).filter(|state| state.generation == parked.generation);
            let mark = match state.map(|state| state.state.as_str()) {
                None | Some("open") => Marks::OPEN,
                Some("discarded") => Marks::DISCARDED,
                Some("erased") => {
                    produced.erased(&parked.id);
                    continue;
                }
                Some("replaying") => Marks::REPLAYING,
                // Only Redrive says so: either the witness has the effect, or it is missing.
                Some(_) => Marks::NONE,
            };
            produced.mark(&parked.id, mark);
        }
        Ok(twins)
    }

    /// Marks records beyond the committed offsets as pending: waiting, running or about to run.
    pub fn pending(&self, produced: &mut ProducedIds) -> Result<(), Failed> {
        let tiers = self.topics.tiers.iter().map(|(_, name)| name).chain(&self.topics.retired);
        let all = std::iter::once(&self.topics.source).chain(tiers).chain([&self.topics.replay]);
        for topic in all {
            self.read(
                topic,
                |span| span.committed.unwrap_or(span.low),
                |record| {
                    let id = match self.reader.read(record) {
                        Ok(Read::Fresh(message, _)) => message.id().to_owned(),
                        Ok(Read::Copy(copy)) => copy.message.id().to_owned(),
                        Err(unreadable) => unreadable.rest.message.id().to_owned(),
                    };
                    produced.mark(&id, Marks::PENDING);
                },
            )?;
        }
        Ok(())
    }

    fn copy(&self, record: &BorrowedMessage<'_>) -> Option<CopyRecord> {
        match self.reader.read(record) {
            Ok(Read::Copy(copy)) => Some(*copy),
            _ => None,
        }
    }

    fn read(
        &self,
        topic: &str,
        from: impl Fn(&Span) -> i64,
        each: impl FnMut(&BorrowedMessage<'_>),
    ) -> Result<u64, Failed> {
        let spans = self.scan.spans(topic).map_err(|error| engine_failed(&error))?;
        self.scan.read(&spans, from, each).map_err(|error| engine_failed(&error))
    }
}

impl std::fmt::Debug for TopicRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicRecords").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
