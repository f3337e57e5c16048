//! Opening a pipeline: its topics are looked at, its letters are read beside, the group is joined.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use redrive::engine::numbers::NumberMap;
use redrive::engine::{EngineError, Execution, Ordering, StoreOptions};
use redrive_core::Time;

use super::engine::{Claim, DueReserve, KafkaEngine, Target};
use super::flow::Traffic;
use super::meeting::PassedOver;
use super::tend::{STRAGGLER_AFTER, TEND_EVERY};
use super::unwritten::Unwritten;
use crate::backlog::keys::Keys;
use crate::backlog::lookahead::LookAhead;
use crate::backlog::spill::Spill;
use crate::client::problems::unavailable;
use crate::commit::tickets::Tickets;
use crate::consume::begin;
use crate::consume::growth;
use crate::consume::mailbox::Mailbox;
use crate::consume::plan::{ASK_MAX, Plan};
use crate::consume::poll::Poller;
use crate::crash::started::Started;
use crate::duplicates::died::Died;
use crate::duplicates::twins::Twins;
use crate::group::control::Control;
use crate::group::standing::Watcher;
use crate::letters::Letters;
use crate::options::{Cluster, KafkaPipeline, Only};
use crate::produce::outbox::Outbox;
use crate::produce::spool::Spool;
use crate::record::Reader;
use crate::topics::LaneKind;
use crate::topics::trim::Trimmer;
use crate::topics::{self, Topics};

/// How long what is in flight may take when partitions are wanted by others, unless the pipeline says. They wait for it
/// meanwhile.
const DRAIN: Duration = Duration::from_secs(20);
/// In blocking mode deliveries wait in place for their next attempt, and will not come to an end in time.
const DRAIN_BLOCKING_MAX: Duration = Duration::from_secs(1);
/// Fresh records in memory, for all partitions together, and their bytes.
const SOURCE_RECORDS: usize = 32_768;
const SOURCE_BYTES: usize = 48 << 20;
/// The same for each partition where keys are ordered: there it bounds those who wait for their key too.
const ORDERED_RECORDS: usize = 100_000;
const ORDERED_BYTES: usize = 64 << 20;
/// Records in the look-ahead, for all partitions of all tiers together.
const LOOK_AHEAD_RECORDS: usize = 1_000_000;
/// What librdkafka may have fetched and nobody has read, for all partitions together.
const PREFETCH_KBYTES: usize = 64 << 10;

impl KafkaEngine {
    /// Opens a pipeline: checks or makes its topics, begins to read its letters, joins the group.
    pub fn open(
        cluster: &Cluster,
        pipeline: &KafkaPipeline,
        options: StoreOptions,
    ) -> Result<Self, EngineError> {
        let ordered = options.ordering == Ordering::Key;
        if ordered {
            topics::refuse_uneven(cluster, pipeline)?;
        }
        let topics = topics::prepare(cluster, pipeline, cluster.topics)?;
        let config = cluster.consumer(&pipeline.name);
        let counts = Counts::ask(&config, cluster, pipeline, &topics)?;
        let mailbox = Arc::new(Mailbox::default());
        let outbox = Outbox::new(cluster.producer(), &mailbox).map_err(|error| unavailable(&error))?;
        let control = Control::follow(cluster, &topics, &mailbox).map_err(|error| unavailable(&error))?;
        let letters = Letters::open(cluster, pipeline, &topics)?;
        let read = read_topics(pipeline, &topics);
        let plan = Plan {
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
        let poller = Poller::start(&config, &names, plan, Reader::new(pipeline), drain, &mailbox)
            .map_err(|error| unavailable(&error))?;
        let state_dir = cluster.state_dir.join("kafka");
        let target = |name: &str| Target { name: name.into(), partitions: counts.of(name) };
        let tiers = topics.tiers.iter().map(|(delay, name)| (*delay, target(name))).collect();
        Ok(Self {
            pipeline: pipeline.clone(),
            options,
            source,
            group: cluster.group.clone(),
            tiers,
            replay_topic: target(&topics.replay),
            dlq: target(&topics.dlq),
            dlq_state: target(&topics.dlq_state),
            progress: target(&topics.progress),
            mailbox,
            poller,
            outbox,
            _trimmer: Trimmer::start(cluster, &topics, letters.trimmer(cluster)),
            letters,
            control,
            watcher: Watcher::start(cluster, watched),
            traffic: Traffic::default(),
            name: cluster.process_name(),
            spool: Spool::open(state_dir.join("spool").join(&pipeline.name), Instant::now()),
            unwritten: Unwritten::default(),
            ending: BTreeSet::new(),
            epoch: 0,
            lanes: Vec::new(),
            by_name: HashMap::new(),
            suspected_before: HashMap::new(),
            ahead: LookAhead::new(Spill::new(&state_dir, &pipeline.name)),
            under_way: BTreeSet::new(),
            put_back: NumberMap::default(),
            copying: BTreeSet::new(),
            keys: Keys::default(),
            key_order_voided: 0,
            held_back: HashSet::new(),
            twins: Twins::default(),
            letter_ends: Vec::new(),
            died: Died::default(),
            passed_over: PassedOver::default(),
            unsure: None,
            unsettled: Vec::new(),
            heard: Instant::now(),
            gap_max: cluster.session() / 2,
            tickets: Tickets::default(),
            dues: DueReserve::default(),
            share: None,
            started: match options.execution {
                Execution::InProcess => Started::open(&state_dir, &pipeline.name),
                Execution::Elsewhere => Started::off(&state_dir, &pipeline.name),
            },
            reminder: state_dir.join(format!("{}.reminder", pipeline.name)),
            committing: None,
            refused: false,
            rounds: 0,
            commit_every: Duration::from_millis(100),
            last_commit: Instant::now(),
            last_progress: Instant::now(),
            last_tending: Instant::now(),
            last_watch: Instant::now(),
            tend_every: TEND_EVERY,
            straggler_after: STRAGGLER_AFTER,
            claim: Claim::Ours,
            drain,
            now: Time::ZERO,
            gated: false,
            odd_to_due: false,
            next_source: 0,
            failed: None,
            closed: false,
            last_answer: None,
            notes: Vec::new(),
            ended: Vec::new(),
        })
    }
}

/// The group gives up on a member that takes longer than its polling interval.
fn drain(cluster: &Cluster, pipeline: &KafkaPipeline, asked: Option<Duration>) -> Duration {
    let bound = if pipeline.blocking { DRAIN_BLOCKING_MAX } else { cluster.poll_interval() / 2 };
    asked.unwrap_or(DRAIN).min(bound)
}

/// How many partitions the topics have.
struct Counts(HashMap<String, i32>);

impl Counts {
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
                    fix: "say where it begins: start = \"earliest\" or \"latest\" in [engine]",
                });
            }
        }
        Ok(counts)
    }

    fn of(&self, topic: &str) -> i32 {
        self.0.get(topic).copied().unwrap_or(1)
    }
}

/// The topics a process reads, and what their records are.
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

fn consumer_config(mut config: ClientConfig, read: &[String], counts: &Counts) -> ClientConfig {
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
