//! Reads the topic of another framework from its beginning to its current end, and resolves pointers to messages.
//! Nothing is written: no group is joined, no offset is committed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::Path;

use rdkafka::Message as _;
use rdkafka::message::BorrowedMessage;
use redrive::Time;
use redrive::internal::adopt::{Dialect, ForeignRecord, NotUnderstood, Origin, Understood};
use redrive_kafka::record::all_headers;
use redrive_kafka::topics::scan::{Scan, Span};
use redrive_kafka::{Cluster, TopicsMode};

use super::batch::{Batches, ImportBatch};
use super::tally::Tally;
use super::{ImportArgs, line};
use crate::args::Global;
use crate::config::Environment;
use crate::config::load::{FILE_DEFAULT, load_text};
use crate::exit::Failed;
use crate::service::engine_failed::engine_failed;
use crate::service::kafka;

/// The maximum number of records held until their pointers are resolved; their bytes are limited approximately too.
const HELD_MAX: usize = 1_000;
const HELD_BYTES_MAX: usize = 8 << 20;
/// Messages closer together than this are read in one go, including the records between them.
const GAP_MAX: i64 = 1_000;

/// A record that outlives the read it came from.
#[derive(Clone, Debug)]
struct Owned {
    topic: String,
    partition: i32,
    offset: i64,
    written: Option<Time>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    has_bad_header: bool,
}

impl Owned {
    fn of(record: &BorrowedMessage<'_>) -> Self {
        let headers = all_headers(record.headers());
        let has_bad_header = headers.is_err();
        let own = |(name, value): (&str, Option<&[u8]>)| (name.to_owned(), value.map(<[u8]>::to_vec));
        let millis = record.timestamp().to_millis().and_then(|millis| u64::try_from(millis).ok());
        Self {
            topic: record.topic().to_owned(),
            partition: record.partition(),
            offset: record.offset(),
            written: millis.map(Time::from_millis),
            key: record.key().map(<[u8]>::to_vec),
            value: record.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default().into_iter().map(own).collect(),
            has_bad_header,
        }
    }

    fn record(&self) -> ForeignRecord<'_> {
        ForeignRecord {
            topic: &self.topic,
            partition: self.partition,
            offset: self.offset,
            written: self.written,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect(),
        }
    }

    fn bytes(&self) -> usize {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len)).sum();
        self.key.as_ref().map_or(0, Vec::len) + self.value.as_ref().map_or(0, Vec::len) + headers
    }
}

/// Reads one topic.
pub struct TopicReader {
    cluster: Cluster,
    topic: String,
    dialect: Option<Dialect>,
    has_source: bool,
}

impl TopicReader {
    pub fn of(args: &ImportArgs, topic: &str, global: &Global) -> Result<Self, Failed> {
        let cluster = if args.brokers.is_empty() { configured(global)? } else { named(&args.brokers) };
        let (dialect, has_source) = (args.dialect.dialect(), args.source.is_some());
        Ok(Self { cluster, topic: topic.to_owned(), dialect, has_source })
    }

    /// Passes letters on in batches until the receiver is gone.
    pub fn read(self, give: &mut dyn FnMut(ImportBatch) -> bool) -> Result<Tally, Failed> {
        let scan = Scan::new(&self.cluster).map_err(|error| engine_failed(&error))?;
        let spans = scan.bounds(&self.topic).map_err(|error| engine_failed(&error))?;
        if spans.is_empty() {
            return Err(Failed::usage(format!("there is no topic `{}`", self.topic))
                .hint("check the topic name and --brokers"));
        }
        let mut work = Work {
            tally: Tally::default(),
            batches: Batches::default(),
            pointers: Pointers { cluster: self.cluster.clone(), scan: None, bounds: HashMap::new() },
        };
        let (mut held, mut bytes, mut failed) = (Vec::new(), 0, None);
        let read = scan.read_while(
            &spans,
            |span| span.low,
            |record| {
                work.tally.read += 1;
                let owned = Owned::of(record);
                match self.understand(&owned) {
                    Ok(understood) => {
                        bytes += owned.bytes();
                        held.push((owned, understood));
                    }
                    Err(why) => work.tally.not_understood(why, &owned.record()),
                }
                if held.len() < HELD_MAX && bytes < HELD_BYTES_MAX {
                    return ControlFlow::Continue(());
                }
                bytes = 0;
                match work.give(std::mem::take(&mut held), give) {
                    Ok(true) => ControlFlow::Continue(()),
                    Ok(false) => ControlFlow::Break(()),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        if let Some(failed) = failed {
            return Err(failed);
        }
        read.map_err(|error| engine_failed(&error))?;
        if work.give(held, give)?
            && let Some(rest) = work.batches.take()
        {
            give(rest);
        }
        Ok(work.tally)
    }

    fn understand(&self, owned: &Owned) -> Result<Understood, NotUnderstood> {
        if owned.has_bad_header {
            return Err(NotUnderstood::BadHeaderName);
        }
        match self.dialect {
            Some(dialect) => dialect.understand(&owned.record(), self.has_source),
            None => Dialect::understand_any(&owned.record(), self.has_source),
        }
    }
}

/// The state of reading a topic.
struct Work {
    tally: Tally,
    batches: Batches,
    pointers: Pointers,
}

impl Work {
    /// Builds lines from parsed records; returns whether the receiver is still there.
    fn give(
        &mut self,
        held: Vec<(Owned, Understood)>,
        give: &mut dyn FnMut(ImportBatch) -> bool,
    ) -> Result<bool, Failed> {
        let wanted = held.iter().filter(|(_, understood)| understood.is_pointer);
        let wanted: Vec<&Origin> = wanted.filter_map(|(_, understood)| understood.origin.as_ref()).collect();
        let found = self.pointers.follow(&wanted)?;
        for (owned, understood) in held {
            let pointed_at = understood.origin.as_ref().filter(|_| understood.is_pointer);
            let message = pointed_at.and_then(|origin| found.get(origin)).map(Owned::record);
            if let (Some(origin), None) = (pointed_at, &message) {
                self.tally.lost.add(&origin.topic, origin.partition, origin.offset);
                continue;
            }
            self.tally.understood(&understood);
            let record = owned.record();
            let line = line::of(&record, &understood, message.as_ref());
            if let Some(full) = self.batches.push(line.to_string().as_bytes(), record.place())
                && !give(full)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Finds the messages that pointer records refer to.
struct Pointers {
    cluster: Cluster,
    /// A separate client, since the other one is in the middle of its topic.
    scan: Option<Scan>,
    bounds: HashMap<String, Vec<Span>>,
}

impl Pointers {
    fn follow(&mut self, wanted: &[&Origin]) -> Result<HashMap<Origin, Owned>, Failed> {
        let mut found = HashMap::new();
        let mut by_partition: BTreeMap<(&str, i32), BTreeSet<i64>> = BTreeMap::new();
        for origin in wanted {
            by_partition.entry((&origin.topic, origin.partition)).or_default().insert(origin.offset);
        }
        for ((topic, partition), offsets) in by_partition {
            self.learn(topic)?;
            let Some(scan) = &self.scan else { continue };
            let span =
                self.bounds.get(topic).and_then(|all| all.iter().find(|one| one.partition == partition));
            let Some(span) = span else { continue };
            let there: Vec<i64> = offsets.range(span.low..span.end.max(span.low)).copied().collect();
            for run in there.chunk_by(|one, next| next - one <= GAP_MAX) {
                let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
                let part = Span { low: *first, end: last + 1, ..span.clone() };
                let read = scan.read(
                    &[part],
                    |part| part.low,
                    |record| {
                        if offsets.contains(&record.offset()) {
                            let (topic, offset) = (topic.to_owned(), record.offset());
                            found.insert(Origin { topic, partition, offset }, Owned::of(record));
                        }
                    },
                );
                read.map_err(|error| engine_failed(&error))?;
            }
        }
        Ok(found)
    }

    /// Queries the beginning and the end of a topic, once.
    fn learn(&mut self, topic: &str) -> Result<(), Failed> {
        if self.bounds.contains_key(topic) {
            return Ok(());
        }
        let scan = match self.scan.take() {
            Some(scan) => scan,
            None => Scan::new(&self.cluster).map_err(|error| engine_failed(&error))?,
        };
        let bounds = scan.bounds(topic).map_err(|error| engine_failed(&error))?;
        self.scan = Some(scan);
        self.bounds.insert(topic.to_owned(), bounds);
        Ok(())
    }
}

/// The cluster from the configuration.
fn configured(global: &Global) -> Result<Cluster, Failed> {
    let hint = "give the brokers of the topic: --brokers HOST:PORT";
    if global.config.is_none() && !Path::new(FILE_DEFAULT).exists() {
        return Err(Failed::usage("no configuration names the topic's brokers").hint(hint));
    }
    match load_text(global, &Environment::of_process())?.config {
        Some(config) if config.engine.kafka.is_some() => kafka::cluster(&config),
        Some(_) => Err(Failed::usage("the configuration names no Kafka cluster").hint(hint)),
        None => Err(Failed::usage("the configuration has faults; `redrive check` shows them").hint(hint)),
    }
}

/// A cluster of which only the brokers are known.
fn named(brokers: &[String]) -> Cluster {
    Cluster {
        brokers: brokers.to_vec(),
        // A client needs a group name even if it never joins.
        group: "redrive-import".to_owned(),
        member: None,
        start: None,
        topics: TopicsMode::Verify,
        state_dir: std::env::temp_dir(),
        passed_on: vec![("client.id".to_owned(), "redrive-import".to_owned())],
    }
}
