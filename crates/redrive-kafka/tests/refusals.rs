//! Records that Kafka refuses. If a record is forbidden or cannot be written for now, its partition is held, and
//! nothing is lost with the local disk; a record that is too large becomes a truncated dead letter, and holds up
//! nothing.

mod support;

use std::path::Path;
use std::time::Duration;

use redrive::internal::engine::{
    Deliver, Delivery, KeepLetters, ProblemKind, Query, ReplayAnswer, ReplayJob, Settlement, StoreOptions,
    Verdict,
};
use redrive_core::{Meta, Reason};
use redrive_kafka::topics::scan::Scan;
use redrive_kafka::topics::{prepare, survey};
use redrive_kafka::{KafkaEngine, TopicsMode};
use redrive_lab::kafka::broker::Broker;
use support::drive::{at, finish_all, ids, messages, settle, take};
use support::{World, message, wait};

/// Room for an uncompressed record of the source.
const LOWERED: &str = "1179660";
const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

/// A broker of its own that enforces ACLs.
struct Guarded {
    broker: Broker,
    _dir: tempfile::TempDir,
}

impl Guarded {
    fn up() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let dir = tempfile::tempdir().unwrap();
        let guarded = Self { broker: Broker::up_secure(&root, dir.path()).expect("a broker"), _dir: dir };
        for resource in ["--topic *", "--group *", "--transactional-id *", "--cluster"] {
            guarded.acl(&format!("--add --allow-principal User:redrive --operation All {resource}"));
        }
        guarded
    }

    fn acl(&self, what: &str) {
        let address = self.broker.address();
        self.broker
            .tool(&format!("kafka-acls.sh --bootstrap-server {address} --force {what}"))
            .expect("ACLs");
    }

    fn revoke_write(&self, topic: &str) {
        self.acl(&format!("--add --deny-principal User:redrive --operation Write --topic {topic}"));
    }

    fn grant_write(&self, topic: &str) {
        self.acl(&format!("--remove --deny-principal User:redrive --operation Write --topic {topic}"));
    }

    /// Returns a pipeline whose engine logs in with a password, while the test itself may do everything.
    fn world(&self, partitions: i32) -> World {
        let mut world = World::at(self.broker.address(), partitions, &TIERS);
        world.cluster.brokers = vec![self.broker.secure("sasl_plaintext").unwrap()];
        for (key, value) in [
            ("security.protocol", "SASL_PLAINTEXT".to_owned()),
            ("sasl.mechanism", "PLAIN".to_owned()),
            ("sasl.username", "redrive".to_owned()),
            ("sasl.password", self.broker.secure("password").unwrap()),
        ] {
            world.cluster.passed_on.push((key.to_owned(), value));
        }
        world
    }
}

/// Settles deliveries without waiting until that is durable.
fn give(engine: &mut KafkaEngine, deliveries: Vec<Delivery>, verdict: impl Fn(&Delivery) -> Verdict) {
    let settlement = |delivery: Delivery| Settlement { verdict: verdict(&delivery), delivery, attempt: None };
    engine.settle(deliveries.into_iter().map(settlement).collect()).expect("settling works");
}

fn dead(delivery: &Delivery) -> Verdict {
    Verdict::Dead { reason: Reason::Permanent, meta: delivery.meta, at: at(1) }
}

fn retry(delivery: &Delivery) -> Verdict {
    Verdict::Retry { due: at(500), meta: Meta { attempts: 1, ..delivery.meta } }
}

fn wait_problem(engine: &mut KafkaEngine, kind: ProblemKind) -> String {
    let mut found = None;
    wait("the problem is told", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        found = engine.condition().problems.into_iter().find(|problem| problem.kind == kind);
        found.is_some()
    });
    found.map(|problem| format!("{}: {}", problem.place, problem.text)).unwrap()
}

/// Returns the sum of the group's committed offsets of the source.
fn committed(world: &World) -> i64 {
    let spans = Scan::new(&world.cluster).unwrap().spans(&world.pipeline.source).unwrap();
    spans.iter().filter_map(|span| span.committed).sum()
}

fn held_and_not_lost(topic: &str, verdict: fn(&Delivery) -> Verdict) {
    let guarded = Guarded::up();
    let world = guarded.world(1);
    world.produce(&messages(0..20));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let topic = format!("{}.{topic}", world.pipeline.name);
    guarded.revoke_write(&topic);
    // The broker applies the change with a delay.
    let taken = take(&mut engine, at(0), 12);
    give(&mut engine, taken, verdict);
    let told = wait_problem(&mut engine, ProblemKind::Write);
    assert!(told.contains(&format!("{}/0", world.pipeline.source)), "{told}");
    assert!(told.contains(&topic) && told.contains("authorization"), "{told}");
    let condition = engine.condition();
    assert_eq!((condition.partitions.blocked, condition.spooled), (1, 0));
    assert_eq!(engine.counts().letters_open, 0);
    assert_eq!(engine.counts().pending(), 20, "what is not written is not at its end");
    let mut more = Vec::new();
    for _ in 0..100 {
        engine.poll(&mut Vec::new()).unwrap();
        engine.take(at(0), 8, &mut more).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(more.is_empty(), "nothing more of the partition is delivered: {:?}", ids(&more));
    assert_eq!(committed(&world), 0, "nothing is committed beyond what is not written");
    assert!(!world.cluster.state_dir.join("kafka/spool").exists());
    // Simulate the loss of the pod and its disk.
    drop(engine);
    std::fs::remove_dir_all(&world.cluster.state_dir).unwrap();
    guarded.grant_write(&topic);
    let mut engine = world.open(StoreOptions::default());
    let mut seen = finish_suspects(&mut engine, 20);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 20, "nothing is lost");
    engine.close().unwrap();
}

/// Delivers everything and settles it as done; suspects are announced first.
fn finish_suspects(engine: &mut KafkaEngine, count: usize) -> Vec<String> {
    let mut done = Vec::new();
    wait("everything is delivered", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        let mut out = Vec::new();
        engine.take(at(1_000), 1, &mut out).expect("taking works");
        for delivery in &out {
            if delivery.suspect.is_some() {
                wait("it is announced", || {
                    engine.poll(&mut Vec::new()).expect("polling works");
                    engine.announce(&[delivery.receipt], at(1_000)).unwrap()
                        == redrive::internal::engine::Announced::Yes
                });
            }
        }
        done.extend(ids(&out));
        settle(engine, out, |_| Verdict::Done);
        done.len() >= count
    });
    done
}

#[test]
fn letters_that_may_not_be_written_hold_their_partition_and_outlive_the_disk() {
    held_and_not_lost("DLQ", dead);
}

#[test]
fn retries_that_may_not_be_written_hold_their_partition_and_outlive_the_disk() {
    held_and_not_lost("retry.1s", retry);
}

/// Only the partition whose record cannot be written stands still, and it resumes by itself.
#[test]
fn a_partition_goes_on_once_its_letters_may_be_written_again() {
    let guarded = Guarded::up();
    let world = guarded.world(2);
    world.produce(&messages(0..40));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let letters = format!("{}.DLQ", world.pipeline.name);
    guarded.revoke_write(&letters);
    let taken = take(&mut engine, at(0), 16);
    let (first, second): (Vec<_>, Vec<_>) = taken.into_iter().partition(|one| one.receipt.seq >> 48 == 0);
    let (died, others) = (first.len(), second.len());
    give(&mut engine, first, dead);
    settle(&mut engine, second, |_| Verdict::Done);
    wait_problem(&mut engine, ProblemKind::Write);
    let rest = finish_all(&mut [&mut engine], at(0), 20 - others);
    assert_eq!(rest.len(), 20 - others, "the other partition goes on");
    let mut more = Vec::new();
    engine.take(at(0), 8, &mut more).unwrap();
    assert!(more.is_empty(), "{:?}", ids(&more));
    guarded.grant_write(&letters);
    let rest = finish_all(&mut [&mut engine], at(0), 20 - died);
    assert_eq!(rest.len(), 20 - died);
    wait("the letters are there, once", || {
        engine.poll(&mut Vec::new()).unwrap();
        engine.counts().letters_open == died as u64 && engine.condition().problems.is_empty()
    });
    assert_eq!((engine.counts().pending(), engine.condition().partitions.reading), (0, 8));
    engine.close().unwrap();
}

fn records(world: &World, topic: &str) -> u64 {
    let scan = Scan::new(&world.cluster).unwrap();
    scan.read(&scan.spans(topic).unwrap(), |span| span.low, |_| {}).unwrap()
}

/// Returns a message of digits that gzip halves and lz4 does not; the source has it in one batch.
fn large(id: &str) -> redrive_core::Message {
    let mut state = 7_u64;
    let digits = (0..1_800_000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"0123456789abcdef"[(state >> 60) as usize]
    });
    message(id).key("k").created(at(0)).payload(digits.collect::<Vec<u8>>()).build().unwrap()
}

fn produce_large(world: &World, ids: &[&str]) {
    let mut config = support::client_at(&world.brokers);
    config.set("compression.type", "gzip").set("message.max.bytes", "10000000");
    let producer = config.create_with_context(support::ProducedOffsets::default()).unwrap();
    for id in ids {
        world.produce_by(&producer, &[large(id)]);
    }
}

/// Whatever the source accepts in a compressed batch fits into each of our topics, whatever the source's limit is.
#[test]
fn a_record_that_only_a_compressed_batch_holds_waits_dies_and_is_replayed_whole() {
    let world = World::new(1, &TIERS);
    let letters = format!("{}.DLQ", world.pipeline.name);
    produce_large(&world, &["dead", "retried"]);
    let mut engine = world.open_caught_up(StoreOptions::default());
    let taken = take(&mut engine, at(0), 2);
    settle(&mut engine, taken, |delivery| match delivery.message.id() {
        "dead" => dead(delivery),
        _ => retry(delivery),
    });
    assert_eq!((engine.counts().letters_open, engine.counts().pending()), (1, 1));
    let retried = take(&mut engine, at(500), 1);
    assert!(retried[0].message.payload() == large("retried").payload(), "a tier has the whole of it");
    settle(&mut engine, retried, dead);
    assert_eq!(engine.condition().spooled, 0);
    assert!(!world.cluster.state_dir.join("kafka/spool").exists());
    assert_eq!(records(&world, &letters), 2, "a record each");
    let all = engine.letters(None, None, 100).unwrap();
    for letter in &all {
        assert_eq!(letter.reason, Reason::Permanent);
        assert!(letter.message.payload() == large(letter.message.id()).payload(), "it is whole");
    }
    let job = ReplayJob {
        id: 7,
        due: at(9),
        force: false,
        target: redrive::internal::engine::ReplayTarget::default(),
    };
    let ids: Vec<u64> = all.iter().map(|letter| letter.id).collect();
    assert_eq!(engine.replay(&job, &ids, at(9).into()).unwrap(), [ReplayAnswer::Replayed; 2]);
    let replayed = take(&mut engine, at(500), 2);
    assert!(replayed.iter().all(|one| one.message.payload() == large(one.message.id()).payload()));
    settle(&mut engine, replayed, |_| Verdict::Done);
    engine.close().unwrap();
}

/// A record that none of our topics accepts, because their limits were lowered: its letter holds what is known about
/// it, and where the whole record is.
#[test]
fn a_record_too_large_to_be_written_becomes_a_letter_that_was_cut_and_holds_up_nobody() {
    let world = World::new(1, &TIERS);
    let letters = format!("{}.DLQ", world.pipeline.name);
    let mut engine = world.open_caught_up(StoreOptions::default());
    for topic in ["DLQ", "retry.1s"] {
        lower_limit(&world, &format!("{}.{topic}", world.pipeline.name));
    }
    produce_large(&world, &["dead", "retried"]);
    world.produce(&messages(0..30));
    let taken = take(&mut engine, at(0), 32);
    settle(&mut engine, taken, |delivery| match delivery.message.id() {
        "dead" => dead(delivery),
        "retried" => retry(delivery),
        id if id.ends_with('1') => dead(delivery),
        id if id.ends_with('2') => retry(delivery),
        _ => Verdict::Done,
    });
    assert_eq!((engine.counts().letters_open, engine.counts().pending()), (5, 3));
    assert_eq!(engine.condition().spooled, 2);
    assert!(engine.condition().problems.is_empty(), "{:?}", engine.condition());
    engine.close().unwrap();
    drop(engine);
    assert_eq!(committed(&world), 32, "the partition went on");

    // Losing the disk loses nothing that is not in Kafka.
    let disk = world.cluster.state_dir.join("kafka/spool");
    let aside = world.cluster.state_dir.join("aside");
    std::fs::rename(&disk, &aside).unwrap();
    let mut engine = world.open_caught_up(StoreOptions::default());
    let all = engine.letters(None, None, 100).unwrap();
    assert_eq!(all.len(), 5);
    for (id, reason) in [("dead", Reason::Permanent), ("retried", Reason::Corrupt)] {
        let letter = all.iter().find(|letter| letter.message.id() == id).expect("it is among the letters");
        assert_eq!((letter.reason, letter.message.key()), (reason, Some(&b"k"[..])));
        let start = letter.message.payload().expect("a part of it is there");
        assert!(start.len() < 100_000 && large(id).payload().unwrap().starts_with(start));
        let job = ReplayJob {
            id: 7,
            due: at(9),
            force: false,
            target: redrive::internal::engine::ReplayTarget::default(),
        };
        assert_eq!(
            engine.replay(&job, &[letter.id], at(9).into()).unwrap(),
            [ReplayAnswer::Damaged],
            "it is not whole"
        );
    }
    engine.close().unwrap();
    drop(engine);

    // With the disk they become whole without a restart as soon as the topic accepts them.
    std::fs::rename(&aside, &disk).unwrap();
    let mut engine = world.open_caught_up(StoreOptions::default());
    engine.offer_spooled_every(Duration::from_millis(100));
    assert_eq!(engine.condition().spooled, 2);
    support::bound_records(&letters, "4000000");
    wait("the spool is empty", || {
        engine.poll(&mut Vec::new()).unwrap();
        engine.condition().spooled == 0
    });
    let all = engine.letters(None, None, 100).unwrap();
    assert_eq!((all.len(), engine.condition().letter_twins), (5, 0));
    for id in ["dead", "retried"] {
        let letter = all.iter().find(|letter| letter.message.id() == id).unwrap();
        assert!(letter.message.payload() == large(id).payload(), "it is whole");
    }
    assert_eq!(records(&world, &letters), 7);
    engine.close().unwrap();
}

/// Lowers the maximum record size of a topic, and waits until the broker applies it.
fn lower_limit(world: &World, topic: &str) {
    support::bound_records(topic, LOWERED);
    let facts = |name: &str| {
        let found = survey(&world.cluster, &world.pipeline).unwrap().found;
        found.into_iter().find(|facts| facts.name == name).map(|facts| facts.max_message_bytes.to_string())
    };
    wait("the limit is known", || facts(topic).as_deref() == Some(LOWERED));
}

/// A batch is refused as a whole if it is too large, or if one of its records is.
#[test]
fn small_records_are_not_to_blame_for_a_batch_that_is_too_large() {
    let world = World::with(&support::brokers(), 1, &TIERS, &[("max.message.bytes", "20000")]);
    prepare(&world.cluster, &world.pipeline, TopicsMode::Create).unwrap();
    support::bound_records(&format!("{}.retry.1s", world.pipeline.name), "151072");
    let noise = |n: u64| {
        (0..9_000_u64).map(move |at| ((at + n * 9_001).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
    };
    let small = |n: u64| {
        message(&format!("m{n}")).created(at(0)).payload(noise(n).collect::<Vec<u8>>()).build().unwrap()
    };
    for n in 0..100 {
        world.produce(&[small(n)]);
    }
    let mut engine = world.open_caught_up(StoreOptions::default());
    let taken = take(&mut engine, at(0), 100);
    settle(&mut engine, taken, retry);
    assert_eq!((engine.counts().letters_open, engine.condition().spooled), (0, 0));
    assert_eq!(finish_all(&mut [&mut engine], at(500), 100).len(), 100);
    engine.close().unwrap();
}

/// If a topic accepts nothing at all, the partition is held, as for every problem that can be repaired.
#[test]
fn a_letter_that_fits_in_no_way_holds_its_partition_until_the_topic_takes_it() {
    let world = World::new(1, &TIERS);
    let mut engine = world.open_caught_up(StoreOptions::default());
    let letters = format!("{}.DLQ", world.pipeline.name);
    support::bound_records(&letters, "100");
    // The broker applies the limit with a delay.
    let mut died = 0;
    wait("a letter is refused", || {
        world.produce(&messages(died..died + 1));
        let taken = take(&mut engine, at(0), 1);
        give(&mut engine, taken, dead);
        died += 1;
        wait("it is held or written", || {
            engine.poll(&mut Vec::new()).unwrap();
            !engine.condition().problems.is_empty() || engine.counts().letters_open == u64::from(died)
        });
        !engine.condition().problems.is_empty()
    });
    let told = wait_problem(&mut engine, ProblemKind::Write);
    assert!(told.contains("too large") && told.contains(&letters), "{told}");
    support::bound_records(&letters, "4000000");
    wait("all letters are there", || {
        engine.poll(&mut Vec::new()).unwrap();
        engine.counts().letters_open == u64::from(died) && engine.condition().problems.is_empty()
    });
    engine.offer_spooled_every(Duration::from_millis(50));
    wait("and the one that was cut is whole", || {
        engine.poll(&mut Vec::new()).unwrap();
        engine.condition().spooled == 0
    });
    let all = engine.letters(None, None, 100).unwrap();
    assert!(all.iter().all(|letter| letter.message.payload() == Some(b"{}")));
    assert_eq!((engine.counts().pending(), engine.counts().letters_open), (0, u64::from(died)));
    engine.close().unwrap();
}
