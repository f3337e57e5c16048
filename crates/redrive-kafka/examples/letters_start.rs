//! What resolved letters cost at a start: time to the first delivery, and memory.
//!
//! ```text
//! cargo run --release -p redrive-kafka --example letters_start -- prepare 300000 NAME   # letters, all replayed successfully
//! cargo run --release -p redrive-kafka --example letters_start -- start NAME            # a new process opens the pipeline
//! cargo run --release -p redrive-kafka --example letters_start -- trim NAME             # deletes resolved letters
//! ```
//! `REDRIVE_TEST_KAFKA` names the broker.

use std::path::Path;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use redrive::internal::engine::{Deliver, History, Query, StoreOptions};
use redrive_core::{Message, Meta, Reason, Time};
use redrive_kafka::letters::KafkaLetters;
use redrive_kafka::record::{CopyRecord, LetterMarks, Origin, headers};
use redrive_kafka::topics::{self, Topics};
use redrive_kafka::{Cluster, GroupStart, KafkaPipeline, KafkaStores, Only, TopicsMode};

type Error = Box<dyn std::error::Error>;

const PARTITIONS: i32 = 4;
const WAIT: Duration = Duration::from_mins(2);

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["prepare", count, name] => prepare(count.parse()?, name),
        ["start", name] => start(name),
        ["trim", name] => trim(name),
        _ => Err("prepare COUNT NAME | start NAME | trim NAME".into()),
    }
}

fn brokers() -> Result<String, Error> {
    Ok(std::env::var("REDRIVE_TEST_KAFKA")?)
}

fn described(name: &str, dir: &Path) -> Result<(Cluster, KafkaPipeline), Error> {
    let cluster = Cluster {
        brokers: vec![brokers()?],
        group: format!("{name}-group"),
        member: None,
        start: Some(GroupStart::Earliest),
        topics: TopicsMode::Create,
        state_dir: dir.to_owned(),
        passed_on: Vec::new(),
    };
    let pipeline = KafkaPipeline {
        name: name.to_owned(),
        source: name.to_owned(),
        tiers: vec![Duration::from_secs(5)],
        id: None,
        tenant: None,
        ttl: None,
        blocking: false,
        only: Only::Everything,
        subscriptions: false,
    };
    Ok((cluster, pipeline))
}

fn prepare(count: i64, name: &str) -> Result<(), Error> {
    let dir = tempfile::tempdir()?;
    let (cluster, pipeline) = described(name, dir.path())?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers()?).set("compression.type", "lz4");
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let new = NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1));
    runtime.block_on(admin.create_topics([&new], &AdminOptions::new().operation_timeout(Some(WAIT))))?;
    std::thread::sleep(Duration::from_secs(1));
    topics::prepare(&cluster, &pipeline, TopicsMode::Create)?;
    let Topics { dlq, dlq_state, .. } = Topics::of(&pipeline);
    let producer: BaseProducer = config.create()?;
    // Pretend that they were resolved two hours ago.
    let at = Time::from_millis(u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())? - 7_200_000);
    for n in 0..count {
        let partition = i32::try_from(n % i64::from(PARTITIONS))?;
        let message = Message::builder(format!("o-{n}")).key("k").payload(vec![b'x'; 512]).created(at);
        let copy = CopyRecord {
            message: message.build()?,
            meta: Meta { created: at, attempts: 4, ..Meta::default() },
            history: History::default(),
            origin: Origin { topic: name.into(), partition, offset: n },
            due: None,
            reason: Some(Reason::MaxRetries),
            dead_at: Some(at),
            job: None,
            marks: LetterMarks::default(),
        };
        let (key, value) = KafkaLetters::succeeded_state(copy.origin.number(), 1, Some(7), at);
        let letter = BaseRecord::<[u8], [u8]>::to(&dlq).partition(partition).headers(headers(&copy, None));
        send(&producer, letter.key(&b"k"[..]).payload(copy.message.payload().unwrap_or_default()));
        send(&producer, BaseRecord::to(&dlq_state).partition(partition).key(key.as_bytes()).payload(&value));
    }
    send(&producer, BaseRecord::<[u8], [u8]>::to(name).partition(0).payload(b"{}"));
    producer.flush(WAIT)?;
    println!("{count} letters of {name}, all resolved");
    Ok(())
}

fn send(producer: &BaseProducer, mut record: BaseRecord<'_, [u8], [u8]>) {
    while let Err((_, back)) = producer.send(record) {
        producer.poll(Duration::from_millis(10));
        record = back;
    }
}

fn start(name: &str) -> Result<(), Error> {
    let dir = tempfile::tempdir()?;
    let (cluster, pipeline) = described(name, dir.path())?;
    let stores = KafkaStores::new(cluster, vec![pipeline]);
    let (began, before) = (Instant::now(), resident());
    let mut engine = stores.engine(name, StoreOptions::default())?;
    let opened = began.elapsed();
    let mut taken = Vec::new();
    while taken.is_empty() && began.elapsed() < WAIT {
        engine.poll(&mut Vec::new())?;
        engine.take(Time::from_millis(u64::MAX / 2), 1, &mut taken)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let first = began.elapsed();
    while !engine.has_caught_up() && began.elapsed() < WAIT {
        engine.poll(&mut Vec::new())?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let counts = engine.counts();
    println!(
        "open {opened:.2?}, first delivery {first:.2?}, letters known {:.2?}: {} open, {} succeeded; {} MB",
        began.elapsed(),
        counts.letters_open,
        counts.letters_succeeded,
        resident().saturating_sub(before) >> 20,
    );
    // Leave the group properly, so that the next start does not have to wait for a session timeout.
    engine.close()?;
    Ok(())
}

fn trim(name: &str) -> Result<(), Error> {
    let dir = tempfile::tempdir()?;
    let (cluster, pipeline) = described(name, dir.path())?;
    let letters = KafkaLetters::open(&cluster, &pipeline, &Topics::of(&pipeline))?;
    if !letters.wait_until_loaded(Instant::now() + WAIT) {
        return Err("the letters could not be read".into());
    }
    let began = Instant::now();
    let trimmed = letters
        .trimmer(&cluster)
        .run(Time::from_millis(u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?))?;
    println!("{trimmed:?} in {:.2?}", began.elapsed());
    Ok(())
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}
