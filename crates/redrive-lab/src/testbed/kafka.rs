//! A run on the Kafka engine, on the real clock: a topic with a partition per lane, orders produced from outside, and
//! the same handler as on the embedded engine.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redrive::{Mode, PipelineHandle, Redrive};
use redrive_core::{Class, Pick, Policy, duration};
use redrive_kafka::{Cluster, GroupStart, KafkaPipeline, KafkaStores, Only, TopicsMode};
use tokio::sync::oneshot;
use tokio::task::block_in_place;

use super::call_log::CallLog;
use super::load::Load;
use super::played::{Error, Played};
use super::recorder::Recorder;
use super::scratch::Scratch;
use super::stage::Stage;
use super::subject::Subject;
use super::trace::{EngineCounts, RunEnd, Trace};
use crate::kafka::letters;
use crate::kafka::load::Loader;
use crate::kafka::topics::{self, Topic};

const LOOK: Duration = Duration::from_millis(20);
/// How often opening a pipeline is tried, and the pause in between.
const OPEN_TRIES: u32 = 4;
const OPEN_AGAIN: Duration = Duration::from_secs(1);
/// Drops records long after they were read, so that a long run fits on the disk.
pub(crate) const SOURCE_SETTINGS: [(&str, &str); 2] =
    [("retention.bytes", "2147483648"), ("segment.bytes", "268435456")];
/// Loads with at least this gather time run alongside a dozen others.
const LONG_GATHER: Duration = Duration::from_millis(100);
/// librdkafka's idempotent producer polls without a pause while messages queue behind an unanswered request (ADR 30).
/// A dozen of them starve a broker on the same cores. So this producer sends each record once and does not retry: any
/// failure ends the run.
const LOAD_SETTINGS: [(&str, &str); 2] = [("enable.idempotence", "false"), ("message.send.max.retries", "0")];
/// Far longer than a group with one member needs to form.
const JOIN_MAX: Duration = Duration::from_mins(1);

/// Runs the load; `None` if interrupted.
pub fn run(load: &Load, subject: &Subject, brokers: &str, stage: Stage<'_>) -> Result<Option<Trace>, Error> {
    let recorder = Arc::new(Recorder::new(load.messages(), load.ends()));
    let end = run_with(load, subject, brokers, recorder.clone(), stage)?;
    Ok(end.map(|end| Trace::of_run(load, &recorder, end)))
}

/// Runs the load with the given log, on temporary topics that are removed afterwards.
pub fn run_with(
    load: &Load,
    subject: &Subject,
    brokers: &str,
    log: Arc<dyn CallLog>,
    stage: Stage<'_>,
) -> Result<Option<RunEnd>, Error> {
    let scratch = Scratch::new()?;
    // The directory is new, so its name is unique.
    let name =
        scratch.path().file_name().map_or("redrive-lab".into(), |name| name.to_string_lossy().into_owned());
    let partitions = load.lanes.max(1).cast_signed();
    let first = connecting(&name);
    let topic = |name, partitions| Topic { name, partitions, settings: &SOURCE_SETTINGS };
    topics::create(brokers, &[topic(&name, partitions), topic(&first, 1)])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let played = Played::new(load, log);
    let end = runtime.block_on(play(&played, subject, brokers, &name, &scratch, stage));
    drop(runtime);
    let found = topics::of_run(brokers, &name)?;
    let broker_records = records(brokers, &name, &found)?;
    let letters = letters::numbers(brokers, &format!("{name}.DLQ"), load.seed)?;
    let tier_records = tier_records(brokers, &name, &subject.policy, &found)?;
    topics::delete(brokers, &found.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(end?.map(|end| RunEnd { broker_records: Some(broker_records), tier_records, letters, ..end }))
}

/// Records ever written to the source, its tiers and its dead letters.
fn records(brokers: &str, name: &str, topics: &[String]) -> Result<u64, Error> {
    let counts = |topic: &&String| {
        let rest = topic.strip_prefix(name).unwrap_or("-");
        rest.is_empty() || rest == ".DLQ" || rest.starts_with(".retry.")
    };
    let mut written = 0;
    for topic in topics.iter().filter(counts) {
        written += topics::reach(brokers, topic)?.iter().map(|(_, next)| next.unsigned_abs()).sum::<u64>();
    }
    Ok(written)
}

/// Records ever written to each tier, in order; empty if a tier has no topic. Delays must be distinct, because tiers
/// with the same delay share a topic.
fn tier_records(brokers: &str, name: &str, policy: &Policy, topics: &[String]) -> Result<Vec<u64>, Error> {
    let mut counts = Vec::new();
    for delay in tier_delays(policy) {
        let topic = format!("{name}.retry.{}", duration::print(delay));
        if !topics.contains(&topic) {
            return Ok(Vec::new());
        }
        counts.push(topics::reach(brokers, &topic)?.iter().map(|(_, next)| next.unsigned_abs()).sum());
    }
    Ok(counts)
}

fn tier_delays(policy: &Policy) -> Vec<Duration> {
    let delay = |n| Duration::from_millis(policy.schedule().delay_ms(n, Class::Transient));
    (1..policy.attempts()).map(delay).collect()
}

/// The topic of the load producer's first record.
pub(crate) fn connecting(name: &str) -> String {
    format!("{name}-connecting")
}

/// The stores of one pipeline, whose message ids are in `order_id`.
pub(crate) fn stores(brokers: &str, name: &str, scratch: &Scratch, policy: &Policy) -> KafkaStores {
    stores_of(brokers, name, None, scratch.path(), policy)
}

/// The same with static membership: the member gets its partitions back at once after a restart.
pub(crate) fn stores_of(
    brokers: &str,
    name: &str,
    member: Option<&str>,
    state_dir: &Path,
    policy: &Policy,
) -> KafkaStores {
    let cluster = Cluster {
        brokers: vec![brokers.to_owned()],
        group: name.to_owned(),
        member: member.map(str::to_owned),
        start: Some(GroupStart::Earliest),
        topics: TopicsMode::Create,
        state_dir: state_dir.to_owned(),
        passed_on: Vec::new(),
    };
    let pipeline = KafkaPipeline {
        name: name.to_owned(),
        source: name.to_owned(),
        tiers: tier_delays(policy),
        id: Some(Pick::Json("/order_id".to_owned())),
        tenant: None,
        ttl: None,
        blocking: policy.mode() == Mode::Blocking,
        only: Only::Everything,
        subscriptions: false,
    };
    KafkaStores::new(cluster, vec![pipeline])
}

async fn play(
    played: &Arc<Played>,
    subject: &Subject,
    brokers: &str,
    name: &str,
    scratch: &Scratch,
    stage: Stage<'_>,
) -> Result<Option<RunEnd>, Error> {
    let lanes = played.load.lanes.max(1);
    let redrive = block_in_place(|| {
        opened(|| {
            let pipeline = played.pipeline(name, subject.concurrency * lanes, subject);
            let stores = stores(brokers, name, scratch, &subject.policy);
            Redrive::builder().engine(stores).pipeline(pipeline).build()
        })
    })?;
    let handle = redrive.pipeline(name).ok_or("a pipeline that was built is missing")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { redrive.run_until(stopped).await });
    joined(&handle, u64::from(lanes)).await?;
    let gather = played.load.gather.as_millis().to_string();
    let mut settings = vec![("linger.ms", gather.as_str())];
    if played.load.gather >= LONG_GATHER {
        settings.extend(LOAD_SETTINGS);
    }
    let loader = Loader::new(brokers, name, u64::from(lanes), &settings)?;
    block_in_place(|| loader.connect(&connecting(name)))?;
    let handles = [handle];
    let watching = (played.triage(&handles), played.watch_metrics(&handles));
    let whole = block_in_place(|| arrive(played, &loader, stage))? && played.follow(stage).await;
    let ran_for = played.elapsed();
    drop(watching);
    let engine =
        played.come_to_rest(&handles, async |handles| Ok(counts(played, &loader, &handles[0]))).await?;
    let _ = stop.send(());
    running.await??;
    // Letters are read from their topic later, once nothing is written there any more.
    Ok(whole.then(|| played.end(engine, Vec::new(), ran_for)))
}

/// Opens one pipeline at a time, with retries: when a small broker creates the topics of a dozen variants at once,
/// some become visible too late.
fn opened<T, E>(open: impl Fn() -> Result<T, E>) -> Result<T, E> {
    static OPENING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 1..OPEN_TRIES {
        if let Ok(opened) = open() {
            return Ok(opened);
        }
        std::thread::sleep(OPEN_AGAIN);
    }
    open()
}

/// Waits until every partition is read. The clock of the run starts after that, and after the load's producer has
/// connected: neither is part of the question.
pub(super) async fn joined(handle: &PipelineHandle, partitions: u64) -> Result<(), Error> {
    let began = Instant::now();
    while handle.figures().condition.partitions.reading < partitions {
        if began.elapsed() > JOIN_MAX {
            return Err("the group has not come together within a minute".into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Messages are produced outside and wait in topics, so pending is what the broker acknowledged minus what the engine
/// counts as ended. `None` while the engine's figures, published every 50 ms, lag behind the handler's.
fn counts(played: &Played, loader: &Loader, handle: &PipelineHandle) -> Option<EngineCounts> {
    let figures = handle.figures();
    let (accepted, letters) = (loader.written(), figures.dead.total());
    let over = figures.succeeded + letters;
    (over >= played.log.ended() && played.log.dead() >= letters).then(|| EngineCounts {
        accepted,
        pending: accepted.saturating_sub(over),
        letters,
    })
}

/// Produces the load. Returns `false` if interrupted.
fn arrive(played: &Played, loader: &Loader, stage: Stage<'_>) -> Result<bool, Error> {
    let load = &played.load;
    let (mut sent, mut burst) = (0, load.burst);
    let send = |number: u64| {
        played.log.arrived(number, played.elapsed());
        let key = format!("c-{}", load.key(number));
        loader.send_to(load.lane(number).cast_signed(), &key, &played.payload(number))
    };
    let mut is_whole = true;
    while !load.is_offered(played.elapsed(), sent) || burst.is_some() {
        let at = played.elapsed();
        stage.at(at, load.ends());
        if stage.is_interrupted() {
            is_whole = false;
            break;
        }
        let due = load.due(at, sent, played.log.started());
        (sent..due).try_for_each(send)?;
        sent = due;
        if burst.is_some_and(|burst| burst.at <= at) {
            burst = None;
            (load.paced()..load.messages()).try_for_each(send)?;
        }
        loader.rest(load.tick());
    }
    loader.drain()?;
    played.offered(sent + load.burst.map_or(0, |burst| burst.messages));
    Ok(is_whole)
}
