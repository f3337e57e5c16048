//! The engine of one pipeline: its parts, how it is opened, and what became of what was under way.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use redrive::engine::numbers::NumberMap;
use redrive::engine::{AfterDead, EngineError, LetterState, Ordering, StoreOptions, Ticket};
use redrive_core::Time;

use crate::assign::{self, Plan};
use crate::commit::Tickets;
use crate::keys::{Keys, hash_of};
use crate::lane::{Lane, LaneKind};
use crate::letters::Letters;
use crate::lookahead::LookAhead;
use crate::mailbox::{Mailbox, Note};
use crate::options::{Cluster, KafkaPipeline, Only};
use crate::poll::Poller;
use crate::produce::{Ended, Outbox, Production};
use crate::record::Reader;
use crate::spill::Spill;
use crate::spool::Spool;
use crate::topics::{self, Topics};

/// How long what is in flight may take when partitions are wanted by others; they wait for it meanwhile.
const DRAIN_MAX: Duration = Duration::from_secs(30);
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

/// A topic that copies are written to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub name: Arc<str>,
    pub partitions: i32,
}

impl Target {
    /// The partition for messages of a source partition.
    pub fn partition(&self, origin: i32) -> i32 {
        origin.rem_euclid(self.partitions.max(1))
    }
}

/// What follows when a copy is acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// The record it replaces is done with.
    Mark {
        lane: usize,
        epoch: u32,
        offset: u64,
        key: Option<u64>,
        number: u64,
        ticket: Option<Ticket>,
        what: What,
    },
    /// A part of what is done is in `T.progress`.
    Progress { lane: usize, epoch: u32 },
    /// A record came out of the spool, and its file can go.
    Spooled(PathBuf),
    /// A bitmap is not needed any more.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Retry {
        due: Time,
    },
    Dead,
    /// A replayed letter was delivered; `replays` counts this replay.
    Succeeded {
        replays: u32,
    },
}

/// How the assigned partitions stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Ours,
    /// Others want them, and wait until then for what is in flight.
    Wanted {
        until: Instant,
    },
    /// They may have them; that they are gone will be told.
    LetGo,
}

/// How the last commit of all ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastCommit {
    Kept,
    Failed(String),
}

/// The Kafka engine of one pipeline. See [`crate::stores::KafkaStores`] for how it is made.
#[derive(Debug)]
pub struct KafkaEngine {
    pub(crate) pipeline: KafkaPipeline,
    pub(crate) options: StoreOptions,
    pub(crate) source: Arc<str>,
    pub(crate) tiers: Vec<(Duration, Target)>,
    pub(crate) replay_topic: Target,
    pub(crate) dlq: Target,
    pub(crate) dlq_state: Target,
    pub(crate) progress: Target,

    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) poller: Poller,
    pub(crate) outbox: Outbox<Then>,
    pub(crate) letters: Letters,
    pub(crate) spool: Spool,

    pub(crate) epoch: u32,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) by_name: HashMap<(Arc<str>, i32), usize>,
    pub(crate) ahead: LookAhead,
    /// Copies that are acknowledged and not read yet, by due, lane and offset.
    pub(crate) under_way: BTreeSet<(u64, usize, u64)>,
    /// Letters that were put back here and not read yet, with their due.
    pub(crate) put_back: NumberMap<u64, Time>,
    /// Retries whose copies are not acknowledged.
    pub(crate) copying: BTreeSet<(u64, u64)>,
    pub(crate) keys: Keys,
    /// Partitions whose tiers have to be read before anything of them may start.
    pub(crate) held_back: HashSet<i32>,

    pub(crate) tickets: Tickets,
    pub(crate) committing: Option<Committing>,
    pub(crate) rounds: u64,
    pub(crate) commit_every: Duration,
    pub(crate) last_commit: Instant,
    pub(crate) last_progress: Instant,
    pub(crate) last_tending: Instant,
    pub(crate) claim: Claim,
    pub(crate) drain: Duration,

    pub(crate) now: Time,
    pub(crate) gated: bool,
    pub(crate) odd_to_due: bool,
    pub(crate) next_source: usize,
    pub(crate) failed: Option<(String, bool)>,
    pub(crate) closed: bool,
    pub(crate) last_answer: Option<LastCommit>,
    pub(crate) notes: Vec<Note>,
    pub(crate) ended: Vec<(Production<Then>, Ended)>,
}

/// A commit that is not answered yet.
#[derive(Debug)]
pub(crate) struct Committing {
    pub round: u64,
    pub epoch: u32,
    /// Lane, its marks at that time, the committed offset, and whether everything beyond it is said.
    pub lanes: Vec<(usize, u64, u64, bool)>,
}

impl KafkaEngine {
    /// Opens a pipeline: checks or makes its topics, reads its letters, joins the group.
    pub fn open(
        cluster: &Cluster,
        pipeline: &KafkaPipeline,
        options: StoreOptions,
    ) -> Result<Self, EngineError> {
        let topics = topics::prepare(cluster, pipeline, cluster.topics)?;
        let config = cluster.consumer(&pipeline.name);
        let counts = Counts::ask(&config, cluster, pipeline, &topics)?;
        let ordered = options.ordering == Ordering::Key;
        if ordered {
            refuse_unequal(&topics, &counts)?;
        }
        let mailbox = Arc::new(Mailbox::default());
        let outbox = Outbox::new(cluster.producer(), &mailbox).map_err(|error| unavailable(&error))?;
        let letters = Letters::open(cluster, pipeline, &topics)?;
        let read = read_topics(pipeline, &topics);
        let plan = Plan {
            pipeline: pipeline.name.clone(),
            source: topics.source.as_str().into(),
            topics: read.iter().map(|(name, kind)| (Arc::from(name.as_str()), *kind)).collect(),
            start: cluster.start,
            progress: topics.progress.clone(),
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
        let drain = if pipeline.blocking { DRAIN_BLOCKING_MAX } else { DRAIN_MAX };
        let config = consumer_config(config, &names, &counts);
        let poller = Poller::start(&config, &names, plan, Reader::new(pipeline), drain, &mailbox)
            .map_err(|error| unavailable(&error))?;
        let state_dir = cluster.state_dir.join("kafka");
        let target = |name: &str| Target { name: name.into(), partitions: counts.of(name) };
        let tiers = topics.tiers.iter().map(|(delay, name)| (*delay, target(name))).collect();
        let mut engine = Self {
            pipeline: pipeline.clone(),
            options,
            source,
            tiers,
            replay_topic: target(&topics.replay),
            dlq: target(&topics.dlq),
            dlq_state: target(&topics.dlq_state),
            progress: target(&topics.progress),
            mailbox,
            poller,
            outbox,
            letters,
            spool: Spool::new(state_dir.join("spool").join(&pipeline.name)),
            epoch: 0,
            lanes: Vec::new(),
            by_name: HashMap::new(),
            ahead: LookAhead::new(Spill::new(&state_dir, &pipeline.name)),
            under_way: BTreeSet::new(),
            put_back: NumberMap::default(),
            copying: BTreeSet::new(),
            keys: Keys::default(),
            held_back: HashSet::new(),
            tickets: Tickets::default(),
            committing: None,
            rounds: 0,
            commit_every: Duration::from_millis(100),
            last_commit: Instant::now(),
            last_progress: Instant::now(),
            last_tending: Instant::now(),
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
        };
        engine.know_blocked_keys()?;
        engine.send_spooled();
        Ok(engine)
    }

    /// How long marks may wait for a commit; 100 ms unless set.
    pub fn commit_every(&mut self, span: Duration) {
        self.commit_every = span;
    }

    /// The first offset of a partition that was not read yet; `None` if the partition is not ours.
    pub fn read_up_to(&self, topic: &str, partition: i32) -> Option<u64> {
        let lane = self.lanes.iter().find(|lane| lane.partition == partition && *lane.topic == *topic)?;
        Some(lane.next)
    }

    /// Whether partitions are assigned and each was read to its end once.
    pub fn has_caught_up(&self) -> bool {
        !self.lanes.is_empty() && self.claim == Claim::Ours && self.lanes.iter().all(|lane| lane.ended)
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.options.ordering == Ordering::Key
    }

    /// With `block_key`, the open letters of each key: read once, then followed.
    fn know_blocked_keys(&mut self) -> Result<(), EngineError> {
        if !self.is_ordered() || self.options.after_dead != AfterDead::BlockKey {
            return Ok(());
        }
        let mut after = None;
        loop {
            let scan = self.letters.scan_letters(Some(LetterState::Open), after, 1_000, 10_000)?;
            for letter in &scan.letters {
                if let Some(key) = hash_of(&letter.message) {
                    self.keys.letter_opened(key, letter.id);
                }
            }
            after = scan.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Whether the engine can go on.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        match &self.failed {
            None => Ok(()),
            Some((problem, true)) => Err(EngineError::Owned(problem.clone())),
            Some((problem, false)) => Err(EngineError::Unavailable(problem.clone())),
        }
    }

    pub(crate) fn fail(&mut self, problem: String, owned: bool) {
        tracing::error!(pipeline = %self.pipeline.name, problem, "the Kafka engine stops");
        self.failed.get_or_insert((problem, owned));
    }
}

impl Drop for KafkaEngine {
    /// Without [`redrive::engine::Engine::close`] it ends as a process that dies: nothing more is committed.
    fn drop(&mut self) {
        self.poller.abort();
    }
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
        let metadata = asker.fetch_metadata(None, assign::ASK_MAX).map_err(|error| unavailable(&error))?;
        let counts = metadata
            .topics()
            .iter()
            .map(|t| (t.name().to_owned(), i32::try_from(t.partitions().len()).unwrap_or(i32::MAX)));
        let counts = Self(counts.collect());
        if cluster.start.is_none() && pipeline.only != Only::Tiers {
            let known = assign::any_committed(&asker, &topics.source).map_err(|error| unavailable(&error))?;
            if !known {
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

pub(crate) fn unavailable(error: &dyn std::fmt::Display) -> EngineError {
    EngineError::Unavailable(format!("Kafka: {error}"))
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

/// Where keys are ordered, a key has to have the same partition number in all topics.
fn refuse_unequal(topics: &Topics, counts: &Counts) -> Result<(), EngineError> {
    let of_source = counts.of(&topics.source);
    let read = topics.tiers.iter().map(|(_, name)| name).chain(&topics.retired).chain([&topics.replay]);
    for name in read {
        let of_tier = counts.of(name);
        if of_tier != of_source {
            return Err(EngineError::Directory {
                problem: format!(
                    "{} has {of_source} partitions and {name} has {of_tier}: with ordering = \"key\" the retries of a \
                     key would wait in another partition than its new messages",
                    topics.source
                ),
                fix: "let a version without ordering drain the tiers, then give all topics the same number of \
                      partitions, or use a new pipeline name",
            });
        }
    }
    Ok(())
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
