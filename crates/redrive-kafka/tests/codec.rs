//! Round trips between records and messages.

use std::time::Duration;

use proptest::prelude::*;
use rdkafka::Timestamp;
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders, OwnedMessage};
use redrive::internal::engine::letter_options::OPTIONS_BYTES_MAX;
use redrive::internal::engine::{Attempt, Grouping, History};
use redrive_core::{Class, FailureKind, Message, Meta, Pick, Reason, Time};
use redrive_kafka::record::{CopyRecord, LetterMarks, Origin, Read, RecordReader, headers, names};
use redrive_kafka::{KafkaPipeline, Only};

fn pipeline() -> KafkaPipeline {
    KafkaPipeline {
        name: "orders".to_owned(),
        source: "orders".to_owned(),
        tiers: vec![Duration::from_secs(5)],
        id: None,
        tenant: None,
        ttl: None,
        blocking: false,
        only: Only::Everything,
        subscriptions: false,
    }
}

type Given<'a> = (&'a str, Option<&'a [u8]>);

fn record(topic: &str, key: Option<&[u8]>, payload: Option<&[u8]>, given: OwnedHeaders) -> OwnedMessage {
    let (key, payload) = (key.map(<[u8]>::to_vec), payload.map(<[u8]>::to_vec));
    OwnedMessage::new(
        payload,
        key,
        topic.to_owned(),
        Timestamp::CreateTime(1_700_000_000_000),
        7,
        1182,
        Some(given),
    )
}

fn given(list: &[Given<'_>]) -> OwnedHeaders {
    list.iter()
        .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: *value }))
}

fn fresh(reader: &RecordReader, record: &OwnedMessage) -> (Message, Meta) {
    match reader.read(record) {
        Ok(Read::Fresh(message, meta)) => (message, meta),
        other => panic!("{other:?}"),
    }
}

fn copied(reader: &RecordReader, record: &OwnedMessage) -> CopyRecord {
    match reader.read(record) {
        Ok(Read::Copy(copy)) => *copy,
        other => panic!("{other:?}"),
    }
}

/// Returns the record that stores `copy`, in `topic`.
fn stored(copy: &CopyRecord, topic: &str) -> OwnedMessage {
    record(
        topic,
        copy.message.key(),
        copy.message.payload(),
        headers(copy, Origin::parse("orders/7/1182").as_ref()),
    )
}

fn value<'r>(record: &'r OwnedMessage, name: &str) -> Vec<&'r [u8]> {
    let headers = record.headers().unwrap();
    headers.iter().filter(|header| header.key == name).filter_map(|header| header.value).collect()
}

fn copy_of(message: Message, meta: Meta) -> CopyRecord {
    let origin = Origin { topic: "orders".into(), partition: 7, offset: 1182 };
    CopyRecord {
        message,
        meta,
        history: History::default(),
        origin,
        due: None,
        reason: None,
        dead_at: None,
        job: None,
        marks: LetterMarks::default(),
    }
}

fn any_time() -> impl Strategy<Value = Time> {
    prop_oneof![Just(0), 1_600_000_000_000..1_900_000_000_000_u64, Just(u64::MAX)].prop_map(Time::from_millis)
}

prop_compose! {
    fn any_meta()(
        created in any_time(),
        deadline in proptest::option::of(any_time()),
        counts in any::<[u32; 5]>(),
        last_crash in proptest::option::of(any_time()),
        first_failed in proptest::option::of(any_time()),
        (held_ms, last_delay_ms) in any::<(u64, u64)>(),
    ) -> Meta {
        let [attempts, uncounted, reconnects, crashes, replays] = counts;
        Meta {
            created, deadline, attempts, uncounted, reconnects, crashes, last_crash, replays, first_failed, held_ms,
            last_delay_ms, deferred: false,
        }
    }
}

fn any_header() -> impl Strategy<Value = (String, Option<Vec<u8>>)> {
    let ours = prop::sample::select(names::ALL.to_vec()).prop_map(str::to_owned);
    let name = prop_oneof![3 => "[a-zA-Z.é-]{0,12}", 1 => ours, 1 => "x-[a-z]{1,8}"];
    (name, proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)))
}

prop_compose! {
    fn any_message()(
        id in "[^\0]{1,40}",
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        payload in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200)),
        tenant in proptest::option::of("[a-z ]{0,12}"),
        headers in proptest::collection::vec(any_header(), 0..8),
        created in any_time(),
        deadline in proptest::option::of(any_time()),
    ) -> Message {
        let mut builder = Message::builder(id).created(created);
        if let Some(key) = key { builder = builder.key(key); }
        if let Some(payload) = payload { builder = builder.payload(payload); }
        if let Some(tenant) = tenant { builder = builder.tenant(tenant); }
        if let Some(deadline) = deadline { builder = builder.deadline(deadline); }
        for (name, value) in headers {
            builder = match value {
                Some(value) => builder.header(name, value),
                None => builder.null_header(name),
            };
        }
        builder.build().unwrap()
    }
}

fn any_kind() -> impl Strategy<Value = FailureKind> {
    use FailureKind::{Other, Refused, Reset, Status, Timeout};
    prop_oneof![any::<u16>().prop_map(Status), Just(Timeout), Just(Refused), Just(Reset), Just(Other)]
}

prop_compose! {
    fn any_attempt()(
        number in any::<u32>(),
        at in any_time(),
        took_ms in any::<u32>(),
        class in prop::sample::select(Class::ALL.to_vec()),
        (counted, ambiguous) in any::<(bool, bool)>(),
        error in ".{0,80}",
        kind in any_kind(),
        code in proptest::option::of("[A-Za-z0-9_.:-]{1,64}"),
    ) -> Attempt {
        Attempt { number, at, took_ms, class, kind, code, counted, ambiguous, error }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_comes_back_exactly(
        message in any_message(),
        meta in any_meta(),
        attempts in proptest::collection::vec(any_attempt(), 0..12),
        partition in 0..10_000_i32,
        offset in 0..1_i64 << 47,
        due in proptest::option::of(any_time()),
        reason in proptest::option::of(prop::sample::select(Reason::ALL.to_vec())),
        dead_at in proptest::option::of(any_time()),
        job in any::<Option<u64>>(),
        (cut, moved, deferred) in any::<(Option<u64>, bool, bool)>(),
        source in "[a-z]{1,8}",
    ) {
        let history = attempts.iter().fold(History::default(), |history, attempt| history.with(attempt));
        let origin = Origin { topic: source.as_str().into(), partition, offset };
        // A letter is not waiting, so it is not deferred.
        let meta = Meta { deferred: deferred && reason.is_none(), ..meta };
        let group = reason.map(|reason| Grouping::default().of(reason, history.attempts().last()));
        let options = reason.map(|_| "{\"attempts\":4}".into());
        let marks = LetterMarks { cut, moved, group, options };
        let copy = CopyRecord { message, meta, history, origin, due, reason, dead_at, job, marks };
        let reader = RecordReader::new(&pipeline());
        let once = copied(&reader, &stored(&copy, "orders.retry.5s"));
        prop_assert_eq!(&once, &copy);
        // A second round trip adds nothing.
        let twice = copied(&reader, &stored(&once, "orders.DLQ"));
        prop_assert_eq!(&twice, &copy);
    }

    #[test]
    fn a_fresh_record_keeps_everything_whatever_its_headers_are_named(
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        payload in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200)),
        list in proptest::collection::vec(any_header(), 0..8),
    ) {
        let list: Vec<Given<'_>> = list.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let record = record("orders", key.as_deref(), payload.as_deref(), given(&list));
        let (message, _) = fresh(&RecordReader::new(&pipeline()), &record);
        prop_assert_eq!(message.key(), key.as_deref());
        prop_assert_eq!(message.payload(), payload.as_deref());
        prop_assert_eq!(message.headers_or_null().collect::<Vec<_>>(), list);
    }
}

#[test]
fn a_letter_is_readable_text() {
    let attempt = Attempt {
        number: 1,
        at: Time::from_millis(1_700_000_000_100),
        took_ms: 12,
        class: Class::Permanent,
        kind: FailureKind::Status(422),
        code: Some("bad_currency".to_owned()),
        counted: true,
        ambiguous: false,
        error: "422 field `currency` must be one of EUR, USD".to_owned(),
    };
    let message = Message::builder("o-1").key("c-7").payload("{}").header("trace", "abc").build().unwrap();
    let meta = Meta { attempts: 1, first_failed: Some(attempt.at), ..Meta::default() };
    let letter = CopyRecord {
        history: History::default().with(&attempt),
        reason: Some(Reason::Permanent),
        dead_at: Some(Time::from_millis(1_700_000_000_112)),
        ..copy_of(message, meta)
    };
    let record = stored(&letter, "orders.DLQ");
    let lines: Vec<_> = record
        .headers()
        .unwrap()
        .iter()
        .map(|header| format!("{}={}", header.key, std::str::from_utf8(header.value.unwrap()).unwrap()))
        .collect();
    assert_eq!(
        lines,
        [
            "trace=abc",
            "x-orig-topic=orders",
            "x-orig-partition=7",
            "x-orig-offset=1182",
            "x-message-id=o-1",
            "x-created=0",
            "x-attempts=1",
            "x-replays=0",
            "x-first-seen=1700000000100",
            "x-reason=permanent",
            "x-dead-at=1700000000112",
            "x-from=orders/7/1182",
            "x-last-error=422 field `currency` must be one of EUR, USD",
            "x-error-class=permanent",
            "x-class=permanent",
            r#"x-attempt-errors=[{"n":1,"at":1700000000100,"took_ms":12,"class":"permanent","kind":"status","status":422,"code":"bad_currency","counted":true,"ambiguous":false,"error":"422 field `currency` must be one of EUR, USD"}]"#,
        ]
    );
}

/// Returns a copy in the first tier, and its headers as lines.
fn first_retry() -> (CopyRecord, Vec<String>) {
    let attempt = Attempt {
        number: 1,
        at: Time::from_millis(1_700_000_000_100),
        took_ms: 12,
        class: Class::Transient,
        kind: FailureKind::Timeout,
        code: None,
        counted: true,
        ambiguous: false,
        error: "no answer within 5s".to_owned(),
    };
    let message = Message::builder("orders/7/1182").payload("{}").build().unwrap();
    let meta = Meta { attempts: 1, first_failed: Some(attempt.at), last_delay_ms: 5_000, ..Meta::default() };
    let copy = CopyRecord {
        history: History::default().with(&attempt),
        due: Some(Time::from_millis(1_700_000_005_100)),
        ..copy_of(message, meta)
    };
    let record = stored(&copy, "orders.retry.5s");
    let line = |header: Header<'_, &[u8]>| {
        format!("{}={}", header.key, std::str::from_utf8(header.value.unwrap()).unwrap())
    };
    let lines = record.headers().unwrap().iter().map(line).collect();
    (copy, lines)
}

#[test]
fn a_retry_leaves_out_what_follows_from_its_other_headers() {
    let (_, lines) = first_retry();
    assert_eq!(
        lines,
        [
            "x-orig-topic=orders",
            "x-orig-partition=7",
            "x-orig-offset=1182",
            "x-message-id=orders/7/1182",
            "x-created=0",
            "x-attempts=1",
            "x-first-seen=1700000000100",
            "x-last-delay-ms=5000",
            "x-due=1700000005100",
            "x-last-error=no answer within 5s",
            "x-error-class=transient",
            r#"x-attempt-errors=[{"n":1,"at":1700000000100,"took_ms":12,"class":"transient","kind":"timeout","counted":true,"ambiguous":false,"error":"no answer within 5s"}]"#,
        ]
    );
    // Values that do not follow from the others are written.
    let (first, _) = first_retry();
    let again = CopyRecord { meta: Meta { replays: 2, ..first.meta }, ..first };
    let from = Origin::parse("orders.retry.5s/3/9");
    let record = record("orders.replay", None, None, headers(&again, from.as_ref()));
    assert_eq!(value(&record, names::REPLAYS), [b"2"]);
    assert_eq!(value(&record, names::FROM), [b"orders.retry.5s/3/9"]);
}

#[test]
fn a_copy_that_says_everything_means_the_same_as_one_that_leaves_defaults_out() {
    let (copy, lines) = first_retry();
    let mut whole: Vec<(&str, &[u8])> = lines
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name, value.as_bytes()))
        .collect();
    // Add the headers that earlier versions wrote.
    whole.insert(6, ("x-replays", b"0"));
    whole.insert(10, ("x-from", b"orders/7/1182"));
    whole.insert(13, ("x-class", b"transient"));
    let list: Vec<Given<'_>> = whole.iter().map(|(name, value)| (*name, Some(*value))).collect();
    let record = record("orders.retry.5s", None, Some(b"{}"), given(&list));
    assert_eq!(copied(&RecordReader::new(&pipeline()), &record), copy);
}

#[test]
fn a_letter_that_was_never_tried_says_why_it_is_one() {
    let message = Message::builder("o-1").build().unwrap();
    let letter = CopyRecord { reason: Some(Reason::TtlExceeded), ..copy_of(message, Meta::default()) };
    let record = stored(&letter, "orders.DLQ");
    assert_eq!(value(&record, names::LAST_ERROR), [b"ttl_exceeded"]);
    assert_eq!(value(&record, names::ERROR_CLASS), [b"transient"]);
}

#[test]
fn headers_of_ours_on_a_source_record_are_the_producers_unless_they_are_whole() {
    let reader = RecordReader::new(&pipeline());
    let some: [Given<'_>; 3] =
        [("x-orig-topic", Some(b"orders")), ("x-attempts", Some(b"3")), ("x-message-id", Some(b"o-1"))];
    let (message, meta) = fresh(&reader, &record("orders", None, None, given(&some)));
    assert_eq!((message.headers_or_null().count(), meta.attempts), (3, 0));

    let whole = copy_of(Message::builder("o-1").build().unwrap(), Meta { attempts: 3, ..Meta::default() });
    let replayed = CopyRecord { job: Some(7), ..whole.clone() };
    assert_eq!(copied(&reader, &stored(&replayed, "orders")).meta.attempts, 3, "a replay onto the source");
    // Copied by hand from another topic: a new message with the old id.
    let letter = CopyRecord { reason: Some(Reason::MaxRetries), ..replayed };
    for by_hand in [&whole, &letter] {
        let (message, meta) = fresh(&reader, &stored(by_hand, "orders"));
        assert_eq!((message.id(), meta.attempts, message.headers_or_null().count()), ("o-1", 0, 0));
    }
    // The letters of one pipeline may be the source of another.
    let other = KafkaPipeline { name: "again".to_owned(), source: "orders.DLQ".to_owned(), ..pipeline() };
    let (message, meta) = fresh(&RecordReader::new(&other), &stored(&whole, "orders.DLQ"));
    assert_eq!((message.id(), meta.attempts), ("orders.DLQ/7/1182", 0));
}

#[test]
fn what_another_tool_appends_to_a_copy_stays_with_it() {
    let copy = copy_of(Message::builder("o-1").header("a", "1").build().unwrap(), Meta::default());
    let appended = headers(&copy, None).insert(Header { key: "mirrored", value: Some("yes") });
    let read = copied(&RecordReader::new(&pipeline()), &record("orders.retry.5s", None, None, appended));
    let names: Vec<_> = read.message.headers().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["a", "mirrored"]);
}

#[test]
fn the_id_is_the_place_or_stands_where_the_pipeline_says() {
    let payload = br#"{"order_id":"o-1","customer":{"id":7}}"#;
    let list: [Given<'_>; 1] = [("Tenant", Some(b"acme"))];
    let record = record("orders", None, Some(payload), given(&list));
    assert_eq!(fresh(&RecordReader::new(&pipeline()), &record).0.id(), "orders/7/1182");

    let picked = KafkaPipeline {
        id: Some(Pick::Json("/order_id".to_owned())),
        tenant: Some(Pick::Header("tenant".to_owned())),
        ..pipeline()
    };
    let (message, _) = fresh(&RecordReader::new(&picked), &record);
    assert_eq!((message.id(), message.tenant()), ("o-1", Some("acme")));
    let number = KafkaPipeline { id: Some(Pick::Json("/customer/id".to_owned())), ..pipeline() };
    assert_eq!(fresh(&RecordReader::new(&number), &record).0.id(), "7");
    // A record without the configured id falls back to its position, which is as stable.
    let missing = KafkaPipeline { id: Some(Pick::Json("/nothing".to_owned())), ..pipeline() };
    assert_eq!(fresh(&RecordReader::new(&missing), &record).0.id(), "orders/7/1182");
}

#[test]
fn the_ttl_counts_from_creation_if_that_can_be_believed() {
    let ttl = KafkaPipeline { ttl: Some(Duration::from_mins(1)), ..pipeline() };
    let reader = RecordReader::new(&ttl);
    let at = |claimed: &[u8]| {
        let list: [Given<'_>; 1] = [("x-created", Some(claimed))];
        let (message, meta) = fresh(&reader, &record("orders", None, None, given(&list)));
        assert_eq!((message.created(), message.deadline()), (meta.created, meta.deadline));
        assert_eq!(meta.deadline, Some(meta.created.plus(Duration::from_mins(1))));
        meta.created.as_millis()
    };
    assert_eq!(at(b"1699999990000"), 1_699_999_990_000, "ten seconds before the record");
    assert_eq!(at(b"1699999000000"), 1_700_000_000_000, "seventeen minutes before it");
    assert_eq!(at(b"yesterday"), 1_700_000_000_000);
}

#[test]
fn a_record_that_cannot_be_a_message_is_told_and_keeps_what_fits() {
    let reader = RecordReader::new(&pipeline());
    let many: Vec<Given<'_>> = (0..300).map(|_| ("h", Some(&b"v"[..]))).collect();
    let fault = reader.read(&record("orders", Some(b"k"), Some(b"{}"), given(&many))).unwrap_err();
    assert_eq!(fault.to_string(), "orders/7/1182: the message has 300 headers, at most 256 are allowed");
    assert_eq!((fault.rest.message.key(), fault.rest.message.payload()), (Some(&b"k"[..]), Some(&b"{}"[..])));
    assert_eq!(fault.rest.origin.to_string(), "orders/7/1182");
    assert_eq!(fault.rest.reason, Some(Reason::Corrupt));

    let key = vec![0; 40_000];
    let fault = reader.read(&record("orders", Some(&key), Some(b"{}"), given(&[]))).unwrap_err();
    assert_eq!((fault.rest.message.key(), fault.rest.message.payload()), (None, Some(&b"{}"[..])));
}

/// Planned room in the topics of a pipeline beyond the largest record of its source.
const HEADER_ROOM_BYTES: usize = 131_072;

/// Returns the size of a record as a broker counts it, or slightly more.
fn size(record: &OwnedMessage) -> usize {
    let headers = record.headers().map_or(0, |headers| {
        headers.iter().map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len) + 10).sum()
    });
    headers + record.key().map_or(0, <[u8]>::len) + record.payload().map_or(0, <[u8]>::len) + 100
}

fn any_long_text() -> impl Strategy<Value = String> {
    let unit = prop::sample::select(vec![
        "é",
        "x",
        "世",
        "\u{0}",
        "\"\\",
        "\n",
        "at com.example.Orders.load(Orders.java:17)\n",
    ]);
    (unit, 0..60_000_usize).prop_map(|(unit, times)| unit.repeat(times))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any accepted message fits as a dead letter, whatever its errors and however many: the additions to its record
    /// stay within the room that the topics have for them.
    #[test]
    fn any_message_with_any_story_fits_as_a_dead_letter(
        message in any_message(),
        long_id in "[a-z]{1,40}",
        meta in any_meta(),
        attempts in proptest::collection::vec((any_attempt(), any_long_text()), 0..30),
        tenant in proptest::option::of("[a-zé]{256}"),
        options in any_long_text(),
    ) {
        let mut history = History::default();
        for (attempt, error) in &attempts {
            history = history.with(&Attempt { error: error.clone(), ..attempt.clone() });
        }
        let last = history.attempts().pop();
        let group = redrive::internal::engine::Grouping::default().of(Reason::MaxRetries, last.as_ref());
        let id = long_id.repeat(25).chars().take(512).collect::<String>();
        let mut builder = Message::builder(id).created(message.created());
        if let Some(key) = message.key() { builder = builder.key(key.to_vec()); }
        if let Some(payload) = message.payload() { builder = builder.payload(payload.to_vec()); }
        if let Some(deadline) = message.deadline() { builder = builder.deadline(deadline); }
        if let Some(tenant) = &tenant { builder = builder.tenant(&tenant[..tenant.floor_char_boundary(256)]); }
        let mut bare = OwnedHeaders::new();
        for (key, value) in message.headers_or_null() {
            builder = match value {
                Some(value) => builder.header(key, value.to_vec()),
                None => builder.null_header(key),
            };
            bare = bare.insert(Header { key, value });
        }
        let message = builder.build().unwrap();
        let options = &options[..options.floor_char_boundary(OPTIONS_BYTES_MAX)];
        let marks = LetterMarks {
            group: Some(group),
            options: Some(options.into()),
            ..LetterMarks::default()
        };
        let bare = record("orders", message.key(), message.payload(), bare);
        let copy = CopyRecord {
            history,
            reason: Some(Reason::MaxRetries),
            dead_at: Some(Time::from_millis(u64::MAX)),
            job: Some(u64::MAX),
            marks,
            ..copy_of(message, meta)
        };
        let letter = stored(&copy, "orders.DLQ");
        let added = size(&letter) - size(&bare);
        prop_assert!(added <= HEADER_ROOM_BYTES, "{added} bytes more than the message itself");
        // A truncated error ends with a mark, and the rest can be read back.
        for attempt in copy.history.attempts() {
            prop_assert!(attempt.error.len() <= 1_100, "{} bytes", attempt.error.len());
        }
    }
}
