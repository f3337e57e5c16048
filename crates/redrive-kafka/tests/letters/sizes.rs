//! Any accepted message becomes one whole letter, whatever its size, the compression of its batch, and the length and
//! number of its errors.

use std::collections::BTreeMap;

use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use redrive::internal::engine::{
    Attempt, Deliver as _, KeepLetters as _, Query as _, ReplayAnswer, Settlement, StoreOptions, Verdict,
};
use redrive_core::{Class, FailureKind, Reason, Time};
use redrive_kafka::{KafkaEngine, KafkaStores};

use crate::fixture::{Fixture, LIMIT, NOW, eventually, job};

/// The most that a message may have.
const HEADERS: usize = 256;
const FAILURES: u32 = 30;

/// One record of the source.
struct Given {
    payload: Vec<u8>,
    headers: usize,
}

/// Returns text of a small alphabet: gzip and zstd halve it, lz4 does not.
fn digits(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let digit = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"0123456789abcdef"[(state >> 60) as usize]
    };
    (0..bytes).map(digit).collect()
}

/// Returns incompressible bytes.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(byte).collect()
}

fn headers(count: usize) -> rdkafka::message::OwnedHeaders {
    (0..count).fold(rdkafka::message::OwnedHeaders::new(), |headers, n| {
        let (key, value) = (format!("h-{n}"), vec![b'v'; 900]);
        headers.insert(rdkafka::message::Header { key: &key, value: Some(&value) })
    })
}

/// Fails if the source refuses a record, because the test would show nothing then.
struct Taken;

impl rdkafka::ClientContext for Taken {}

impl ProducerContext for Taken {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        assert!(result.is_ok(), "the source refuses a record: {:?}", result.as_ref().err());
    }
}

/// Writes each record in a batch of its own, with the codec of a foreign producer.
fn produce(fixture: &Fixture, codec: &str, given: &[Given]) {
    let mut config = fixture.cluster.producer();
    config.set("compression.type", codec).set("linger.ms", "0").set("message.max.bytes", "40000000");
    let producer: BaseProducer<Taken> = config.create_with_context(Taken).unwrap();
    for Given { payload, headers: count } in given {
        let record = BaseRecord::<[u8], [u8]>::to(&fixture.pipeline.source)
            .partition(0)
            .key(b"k")
            .payload(payload)
            .headers(headers(*count));
        producer.send(record).map_err(|(error, _)| error).expect("it is sent");
        producer.flush(LIMIT).expect("the source takes it");
    }
}

/// An error as long as a handler may return, with all kinds of characters.
fn attempt(number: u32) -> Attempt {
    Attempt {
        number,
        at: NOW,
        took_ms: 12,
        class: Class::Transient,
        kind: FailureKind::Status(503),
        code: None,
        counted: true,
        ambiguous: false,
        error: format!(
            "{number}: {}",
            "世\"\\\nat com.example.Orders.load(Orders.java:17)\u{0}".repeat(1_000)
        ),
    }
}

/// Lets each message fail again and again until it dies.
fn kill_all(engine: &mut KafkaEngine, count: usize) {
    let mut failures: BTreeMap<String, u32> = BTreeMap::new();
    let mut died = 0;
    let mut now = NOW;
    eventually("all are dead", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        let mut taken = Vec::new();
        engine.take(now, count, &mut taken).expect("taking works");
        now = Time::from_millis(now.as_millis() + 2_000);
        let batch = taken.into_iter().map(|delivery| {
            let failed = failures.entry(delivery.message.id().to_owned()).or_default();
            *failed += 1;
            let mut meta = delivery.meta;
            meta.attempts = *failed;
            let verdict = if *failed == FAILURES {
                died += 1;
                Verdict::Dead { reason: Reason::MaxRetries, meta, at: now }
            } else {
                Verdict::Retry { due: now, meta }
            };
            Settlement { attempt: Some(attempt(*failed)), verdict, delivery }
        });
        let batch: Vec<_> = batch.collect();
        if !batch.is_empty() {
            engine.settle(batch).expect("settling works");
        }
        assert_eq!(engine.condition().spooled, 0, "nothing is spooled for its size");
        died == count
    });
    eventually("all letters are written", || {
        engine.poll(&mut Vec::new()).expect("polling works");
        engine.counts().letters_open == count as u64
    });
}

fn one_whole_letter_each(codec: &str, given: &[Given]) {
    let fixture = Fixture::new("sizes", 1);
    produce(&fixture, codec, given);
    let stores = KafkaStores::new(fixture.cluster.clone(), vec![fixture.pipeline.clone()]);
    let mut engine = stores.engine(&fixture.pipeline.name, StoreOptions::default()).expect("it opens");
    kill_all(&mut engine, given.len());

    let condition = engine.condition();
    assert_eq!((condition.spooled, condition.letter_twins), (0, 0));
    assert!(condition.problems.is_empty(), "{:?}", condition.problems);
    let mut records = 0;
    fixture.read(&fixture.topics.dlq, |record| {
        records += 1;
        assert!(record.payload().is_some());
    });
    assert_eq!(records, given.len(), "exactly one record for each letter");
    let letters = engine.letters(None, None, 1_000).unwrap();
    assert_eq!(letters.len(), given.len());
    for (letter, given) in letters.iter().zip(given) {
        assert!(letter.message.payload() == Some(&given.payload), "{} is whole", letter.message.id());
        assert_eq!(letter.message.headers().count(), given.headers);
        let history = letter.history.attempts();
        for kept in &history {
            let whole = attempt(kept.number).error;
            assert!(kept.error.len() < 1_100 && whole.starts_with(&kept.error[..20]));
            assert!(kept.error.ends_with('…'), "a text that was cut says so: {:?}", &kept.error[900..]);
        }
        let numbers: Vec<u32> = history.iter().map(|kept| kept.number).collect();
        let kept: Vec<u32> = std::iter::once(1).chain(FAILURES - 7..=FAILURES).collect();
        assert_eq!((numbers, letter.meta.attempts), (kept, FAILURES), "the gap is seen, and all are counted");
    }
    let ids: Vec<u64> = letters.iter().map(|letter| letter.id).collect();
    let answers = engine.replay(&job(7), &ids, NOW.into()).unwrap();
    assert_eq!(answers, vec![ReplayAnswer::Replayed; ids.len()]);
    engine.close().unwrap();
}

#[test]
fn whatever_a_source_without_compression_takes_is_one_whole_letter() {
    // The largest that the source accepts: its limit minus the overhead of the batch.
    let largest = 1_048_588 - 100;
    let given = [0, 1, 1_000, 500_000, largest].map(|bytes| Given { payload: noise(7, bytes), headers: 0 });
    one_whole_letter_each("none", &given);
    let many = [Given { payload: noise(9, 800_000), headers: HEADERS }];
    one_whole_letter_each("none", &many);
}

#[test]
fn whatever_a_source_with_gzip_takes_is_one_whole_letter() {
    one_whole_letter_each("gzip", &compressed());
}

#[test]
fn whatever_a_source_with_zstd_takes_is_one_whole_letter() {
    one_whole_letter_each("zstd", &compressed());
}

/// Returns records that exceed the source's limit before compression.
fn compressed() -> Vec<Given> {
    let mut given: Vec<_> =
        (1..4).map(|n| Given { payload: digits(n, 600_000 * n as usize), headers: 0 }).collect();
    given.push(Given { payload: digits(4, 1_500_000), headers: HEADERS });
    // One character repeated: the largest possible payload, compressed to a few kilobytes.
    given.push(Given { payload: vec![b'x'; 32 * 1024 * 1024], headers: 0 });
    given
}
