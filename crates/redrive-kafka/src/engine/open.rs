//! Opens a pipeline: checks its topics, starts reading its letters, joins the group.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use redrive::internal::engine::{DeliveryOrder, EngineError, StoreOptions};
use redrive_core::Time;

use super::kafka::{KafkaEngine, Upkeep};
use crate::backlog::key_order::KeyOrder;
use crate::backlog::lanes::Lanes;
use crate::backlog::lookahead::LookAhead;
use crate::backlog::queue::Backlog;
use crate::backlog::spill::Spill;
use crate::client::problems::unavailable;
use crate::clock::Interval;
use crate::commit::commits::Commits;
use crate::commit::tickets::Tickets;
use crate::consume::begin;
use crate::consume::growth;
use crate::consume::mailbox::Mailbox;
use crate::consume::ownership::Ownership;
use crate::consume::plan::{ASK_MAX, ReadPlan};
use crate::consume::poll::Poller;
use crate::crash::ledger::CrashLedger;
use crate::duplicates::detector::Duplicates;
use crate::group::control::Control;
use crate::group::status::GroupStatus;
use crate::group::watcher::Watcher;
use crate::letters::KafkaLetters;
use crate::options::{Cluster, KafkaPipeline, Only};
use crate::produce::copies::Copies;
use crate::produce::outbox::Outbox;
use crate::produce::spool::Spool;
use crate::produce::targets::TargetTopics;
use crate::produce::transit::Transit;
use crate::produce::unwritten::Unwritten;
use crate::record::RecordReader;
use crate::topics::trim::Trimmer;
use crate::topics::{self, LaneKind, Topics};

const COMMIT_EVERY: Duration = Duration::from_millis(100);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const WATCH_EVERY: Duration = Duration::from_secs(1);
const STRAGGLERS_EVERY: Duration = Duration::from_secs(5);
/// A waiting message that holds up the committed offset for this long is rewritten.
const STRAGGLER_AFTER: Duration = Duration::from_mins(10);
/// How long in-flight messages may take when partitions are revoked, unless the pipeline sets it. Other members wait in
/// the meantime.
const DRAIN: Duration = Duration::from_secs(20);
/// In blocking mode deliveries wait in place for their next attempt, and will not finish in time.
const DRAIN_BLOCKING_MAX: Duration = Duration::from_secs(1);
/// Bounds on fresh records in memory, and on their bytes, for all partitions together.
const SOURCE_RECORDS: usize = 32_768;
const SOURCE_BYTES: usize = 48 << 20;
/// The same bounds per partition with key order, where they include messages that wait for their key.
const ORDERED_RECORDS: usize = 100_000;
const ORDERED_BYTES: usize = 64 << 20;
/// Records in the look-ahead, for all partitions of all tiers together.
const LOOK_AHEAD_RECORDS: usize = 1_000_000;
/// What librdkafka may have fetched and not handed over, for all partitions together.
const PREFETCH_KBYTES: usize = 64 << 10;

/// Opens a pipeline: checks or creates its topics, starts reading its letters, joins the group.
pub(crate) fn open(
    cluster: &Cluster,
    pipeline: &KafkaPipeline,
    options: StoreOptions,
) -> Result<KafkaEngine, EngineError> {
    let ordered = options.ordering == DeliveryOrder::Key;
    let prepare = if ordered { topics::prepare_ordered } else { topics::prepare };
    let topics = prepare(cluster, pipeline, cluster.topics)?;
    let config = cluster.consumer(&pipeline.name);
    let counts = PartitionCounts::ask(&config, cluster, pipeline, &topics)?;
    let mailbox = Arc::new(Mailbox::default());
    let outbox = Outbox::new(cluster.producer(), &mailbox).map_err(|error| unavailable(&error))?;
    let control = Control::follow(cluster, &topics, &mailbox).map_err(|error| unavailable(&error))?;
    let letters = KafkaLetters::open_grouped(cluster, pipeline, &topics, options.grouping.clone())?;
    let read = read_topics(pipeline, &topics);
    let plan = ReadPlan {
        pipeline: pipeline.name.clone(),
        source: topics.source.as_str().into(),
        topics: read.iter().map(|(name, kind)| (Arc::from(name.as_str()), *kind)).collect(),
        start: cluster.start,
        progress: topics.progress.clone(),
        owned: topics.clone(),
        letters: topics.dlq.clone(),
        reader: cluster.reader(),
        cluster: cluster.clone(),
        description: pipeline.clone(),
        ordered,
        source_records: if ordered {
            ORDERED_RECORDS * counts.of(&topics.source).max(1) as usize
        } else {
            SOURCE_RECORDS
        },
        source_bytes: if ordered {
            ORDERED_BYTES * counts.of(&topics.source).max(1) as usize
        } else {
            SOURCE_BYTES
        },
        tier_records: LOOK_AHEAD_RECORDS,
    };
    let source = Arc::clone(&plan.source);
    let names: Vec<String> = read.into_iter().map(|(name, _)| name).collect();
    let watched = names.iter().map(|name| Arc::from(name.as_str())).collect();
    let drain = drain(cluster, pipeline, options.drain);
    let config = consumer_config(config, &names, &counts);
    let poller = Poller::start(&config, &names, plan, RecordReader::new(pipeline), drain, &mailbox)
        .map_err(|error| unavailable(&error))?;
    let state_dir = cluster.state_dir.join("kafka");
    let now = Instant::now();
    let spool = Spool::open(state_dir.join("spool").join(&pipeline.name), now);
    let targets = TargetTopics::new(&topics, |name| counts.of(name));
    let ahead = LookAhead::new(Spill::new(&state_dir, &pipeline.name));
    Ok(KafkaEngine {
        pipeline: pipeline.clone(),
        name: cluster.process_name(),
        state_dir: state_dir.clone(),
        poller,
        ownership: Ownership::new(now, cluster.session() / 2, drain),
        lanes: Lanes::new(&mailbox),
        backlog: Backlog::new(Arc::clone(&source), pipeline.blocking, ahead, KeyOrder::new(&options)),
        source,
        duplicates: Duplicates::default(),
        ledger: CrashLedger::open(&state_dir, &pipeline.name, &options),
        grouping: options.grouping,
        letter_options: options.letter_options,
        copies: Copies::new(outbox, spool, targets),
        transit: Transit::default(),
        unwritten: Unwritten::default(),
        tickets: Tickets::default(),
        commits: Commits::new(now, COMMIT_EVERY),
        assigned_at: Time::ZERO,
        trimmer: Trimmer::start(cluster, &topics, letters.trimmer(cluster)),
        letters,
        control,
        group: GroupStatus::new(cluster.group.clone(), Watcher::start(cluster, watched), &mailbox),
        mailbox,
        upkeep: Upkeep {
            watch: Interval::new(WATCH_EVERY, now),
            progress: Interval::new(PROGRESS_EVERY, now),
            stragglers: Interval::new(STRAGGLERS_EVERY, now),
            straggler_after: STRAGGLER_AFTER,
        },
        share: None,
        now: Time::ZERO,
        gated: false,
        failed: None,
        closed: false,
        last_answer: None,
        notes: Vec::new(),
    })
}

/// Returns the drain time, bounded because the group gives up on a member that exceeds its poll interval.
fn drain(cluster: &Cluster, pipeline: &KafkaPipeline, asked: Option<Duration>) -> Duration {
    let bound = if pipeline.blocking { DRAIN_BLOCKING_MAX } else { cluster.poll_interval() / 2 };
    asked.unwrap_or(DRAIN).min(bound)
}

/// How many partitions the topics have.
struct PartitionCounts(HashMap<String, i32>);

impl PartitionCounts {
    fn ask(
        config: &ClientConfig,
        cluster: &Cluster,
        pipeline: &KafkaPipeline,
        topics: &Topics,
    ) -> Result<Self, EngineError> {
        let mut config = config.clone();
        config.remove("group.instance.id");
        let asker: BaseConsumer = config.create().map_err(|error| unavailable(&error))?;
        let metadata = asker.fetch_metadata(None, ASK_MAX).map_err(|error| unavailable(&error))?;
        let counts = metadata
            .topics()
            .iter()
            .map(|t| (t.name().to_owned(), i32::try_from(t.partitions().len()).unwrap_or(i32::MAX)));
        let counts = Self(counts.collect());
        if pipeline.only != Only::Tiers {
            let known = growth::any_committed(&asker, &topics.source).map_err(|error| unavailable(&error))?;
            if !known && let Some(ran) = begin::ran_before(cluster, topics)? {
                return Err(ran.into());
            }
            if !known && cluster.start.is_none() {
                return Err(EngineError::Directory {
                    problem: format!("the group {} has never read {}", cluster.group, topics.source),
                    fix: "choose where it begins: start = \"earliest\" or \"latest\" in [engine]",
                });
            }
        }
        Ok(counts)
    }

    fn of(&self, topic: &str) -> i32 {
        self.0.get(topic).copied().unwrap_or(1)
    }
}

/// Returns the topics that a process reads, and the kind of their records.
fn read_topics(pipeline: &KafkaPipeline, topics: &Topics) -> Vec<(String, LaneKind)> {
    let source = std::iter::once((topics.source.clone(), LaneKind::Source));
    let tiers = topics.tiers.iter().map(|(_, name)| name).chain(&topics.retired);
    let tiers = tiers.map(|name| (name.clone(), LaneKind::Tier));
    let replay = std::iter::once((topics.replay.clone(), LaneKind::Replay));
    match pipeline.only {
        Only::Everything => source.chain(tiers).chain(replay).collect(),
        Only::Source => source.collect(),
        Only::Tiers => tiers.chain(replay).collect(),
    }
}

fn consumer_config(mut config: ClientConfig, read: &[String], counts: &PartitionCounts) -> ClientConfig {
    let partitions: i32 = read.iter().map(|name| counts.of(name)).sum();
    let kbytes = (PREFETCH_KBYTES / partitions.max(1) as usize).clamp(256, 16 << 10);
    for (key, value) in [
        ("queued.max.messages.kbytes", kbytes.to_string()),
        ("fetch.wait.max.ms", "100".to_owned()),
        ("statistics.interval.ms", "1000".to_owned()),
    ] {
        if config.get(key).is_none() {
            config.set(key, value);
        }
    }
    config.set("enable.partition.eof", "true");
    config
}
