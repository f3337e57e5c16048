//! Story 15 on Kafka: dead letters from the topics of Spring, Connect and share groups become letters of a pipeline, on
//! Kafka or not. The foreign topic is only read.
#![cfg(feature = "kafka")]

mod world;

use std::path::Path;

use serde_json::{Value, json};
use world::kafka::{self, Raw};
use world::process::{Processor, stderr, stdout};
use world::stub::Stub;
use world::wait_for;

const TRACE: &str = "org.springframework.kafka.listener.ListenerExecutionFailedException: Listener failed\n\tat \
org.springframework.kafka.listener.KafkaMessageListenerContainer.decorate(KafkaMessageListenerContainer.java:2946)\nCaused \
by: org.springframework.dao.QueryTimeoutException: order NUMBER took too long\n\tat \
com.example.Orders.load(Orders.java:41)\n\t... 12 more\n";

fn pipeline_lines(name: &str) -> String {
    format!("name = \"{name}\"\nid = \"json:/order_id\"\ntiers = [\"100ms\", \"1s\"]\njitter = \"none\"")
}

/// A processor whose pipeline reads a Kafka topic.
fn on_kafka(dir: &Path) -> (Stub, Processor, String) {
    let orders = kafka::name("orders");
    kafka::create(&orders, 2);
    let stub = Stub::start(dir, &[]);
    let engine = kafka::engine(&format!("{orders}-delivery"), "redrive-0");
    let processor = Processor::start(dir, &world::config(&engine, &pipeline_lines(&orders), &stub.url));
    (stub, processor, orders)
}

fn letters(processor: &Processor, pipeline: &str) -> Value {
    processor.get(&format!("/v1/pipelines/{pipeline}")).json()["letters"].clone()
}

fn run(processor: &Processor, args: &[&str]) -> (Option<i32>, String) {
    let ran = processor.cli(args);
    (ran.status.code(), format!("{}{}", stdout(&ran), stderr(&ran)))
}

fn good(processor: &Processor, args: &[&str]) -> String {
    let (code, said) = run(processor, args);
    assert_eq!(code, Some(0), "{args:?}: {said}");
    said
}

fn order(n: u64) -> Vec<u8> {
    json!({ "order_id": format!("o-{n}"), "amount": 5 }).to_string().into_bytes()
}

fn text(name: &str, value: &str) -> (String, Vec<u8>) {
    (name.to_owned(), value.as_bytes().to_vec())
}

/// As `DeadLetterPublishingRecoverer` writes it.
fn spring(source: &str, n: u64) -> Raw {
    let headers = vec![
        text("x-tenant", "acme"),
        text("kafka_dlt-original-topic", source),
        ("kafka_dlt-original-partition".to_owned(), ((n % 2) as i32).to_be_bytes().to_vec()),
        ("kafka_dlt-original-offset".to_owned(), (1_000 + n).to_be_bytes().to_vec()),
        ("kafka_dlt-original-timestamp".to_owned(), 1_700_000_000_123_u64.to_be_bytes().to_vec()),
        text("kafka_dlt-original-timestamp-type", "CREATE_TIME"),
        text("kafka_dlt-original-consumer-group", "billing"),
        text(
            "kafka_dlt-exception-fqcn",
            "org.springframework.kafka.listener.ListenerExecutionFailedException",
        ),
        text("kafka_dlt-exception-cause-fqcn", "org.springframework.dao.QueryTimeoutException"),
        text("kafka_dlt-exception-message", "Listener failed"),
        text("kafka_dlt-exception-stacktrace", &TRACE.replace("NUMBER", &n.to_string())),
    ];
    let key = Some(format!("c-{}", n % 5).into_bytes());
    Raw { partition: (n % 2) as i32, key, value: Some(order(n)), headers }
}

#[test]
fn letters_of_spring_are_imported_once_grouped_by_exception_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor, orders) = on_kafka(dir.path());
    let dlt = format!("{orders}-dlt");
    kafka::create(&dlt, 2);
    kafka::produce_raw(&dlt, (0..60).map(|n| spring(&orders, n)));
    // Three without an origin, and one with a damaged offset.
    kafka::produce_raw(
        &dlt,
        (60..63).map(|n| Raw { partition: 0, headers: Vec::new(), ..spring(&orders, n) }),
    );
    let mut damaged = spring(&orders, 63);
    damaged.headers[3].1.truncate(3);
    kafka::produce_raw(&dlt, [Raw { partition: 1, ..damaged }]);

    let import = ["dlq", "import", "--topic", &dlt, "--dialect", "spring", "--pipeline", &orders];
    let (code, said) = run(&processor, &[&import[..], &["--dry-run"]].concat());
    assert_eq!(code, Some(1), "a dry run ends as the import would: {said}");
    let command =
        format!("redrive dlq import --topic {dlt} --dialect spring --pipeline {orders} --source {orders}");
    assert!(said.contains(&command), "{said}");
    assert!(
        said.contains(&format!(
            "64 records read: 60 understood (kafka_dlt-original-topic/partition/offset, exception-fqcn, message), 3 without \
             origin headers → need --source {orders}, 1 not understood"
        )),
        "{said}"
    );
    let title = "org.springframework.dao.QueryTimeoutException at com.example.Orders.load";
    assert!(said.contains(&format!("would be 1 group; largest: 60 × {title}")), "{said}");
    assert!(said.contains(&format!("{dlt}/0/30..32")) && said.contains(&format!("{dlt}/1/30")), "{said}");
    assert_eq!(letters(&processor, &orders)["open"], 0);

    // Records that cannot be parsed are named, and make the command exit with 1.
    let with_source = [&import[..], &["--source", &orders]].concat();
    let (code, said) = run(&processor, &with_source);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("imported 63   already there 0"), "{said}");
    assert!(
        said.contains(&format!("1 × the header kafka_dlt-original-offset is not a number: {dlt}/1/30")),
        "{said}"
    );
    processor.kill();
    processor.restart();
    wait_for("the letters to be read", || letters(&processor, &orders)["open"] == 63);
    let said = run(&processor, &with_source).1;
    assert!(said.contains("imported 0   already there 63"), "{said}");
    assert_eq!(letters(&processor, &orders)["open"], 63);

    // The foreign topic was only read.
    let mut records = 0;
    kafka::read(&dlt, |_| records += 1);
    assert_eq!(records, 64);
    for group in ["redrive-import", &format!("{orders}-delivery")] {
        assert!(!kafka::has_committed(group, &dlt), "{group}");
    }

    let groups = good(&processor, &["dlq", "groups", &orders]);
    assert!(groups.contains(title) && groups.contains("63 open in 2 groups"), "{groups}");
    let letter: Value = serde_json::from_str(&good(
        &processor,
        &["dlq", "show", &orders, &format!("{orders}/1/1007"), "--json"],
    ))
    .unwrap();
    assert_eq!((&letter["message"], &letter["attempts"]), (&json!("o-7"), &json!(1)), "{letter}");
    let trace = &letter["headers"]["kafka_dlt-exception-stacktrace"];
    assert_eq!(trace, &TRACE.replace("NUMBER", "7"), "the whole stack trace stays");
    // It is edited, replayed and audited like any other.
    let one = format!("{orders}/1/1007");
    let edited = good(&processor, &["dlq", "edit", &orders, "--ids", &one, "--set", "/note=\"seen\""]);
    assert!(edited.starts_with("edited 1 letter   edit e-"), "{edited}");
    let replayed = good(&processor, &["dlq", "replay", &orders, "--all"]);
    assert!(replayed.contains("succeeded 63"), "{replayed}");
    assert!((0..63).all(|n| stub.has_applied(&format!("o-{n}"))));
    let audit = ["audit", &orders, "--applied", &stub.url, "--ids", "o-0..o-62", "--json", "-q"];
    let audit: Value = serde_json::from_str(&good(&processor, &audit)).unwrap();
    let counts = (&audit["produced"], &audit["succeeded"], &audit["missing"]);
    assert_eq!(counts, (&json!(63), &json!(63), &json!(0)), "{audit}");
    let actions = good(&processor, &["audit", &orders, "--actions", "--json"]);
    let lines = actions.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let imports: Vec<Value> = lines.filter(|line| line["action"] == "import").collect();
    assert_eq!(imports.len(), 1, "{imports:?}");
    assert_eq!((&imports[0]["letters"], &imports[0]["note"]), (&json!(63), &json!(format!("topic {dlt}"))));
    // Resolved letters are not imported again either.
    let said = run(&processor, &with_source).1;
    assert!(said.contains("imported 0   already there 63"), "{said}");
}

/// With `--source`, every record of the pipeline's own source and every existing letter would become a letter again.
#[test]
fn topics_of_the_pipeline_itself_are_not_imported() {
    let dir = tempfile::tempdir().unwrap();
    let (_stub, processor, orders) = on_kafka(dir.path());
    for (topic, what) in [
        (orders.clone(), "the source of"),
        (format!("{orders}.DLQ"), "a topic of"),
        (format!("{orders}.DLQ.state"), "a topic of"),
        (format!("{orders}.retry.100ms"), "a topic of"),
        (format!("{orders}.replay"), "a topic of"),
        (format!("{orders}.progress"), "a topic of"),
    ] {
        let import = ["dlq", "import", "--topic", &topic, "--pipeline", &orders];
        for more in [&["--source", &orders][..], &["--dry-run"], &["--brokers", &kafka::address()]] {
            let (code, said) = run(&processor, &[&import[..], more].concat());
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains(&format!("`{topic}` is {what} the pipeline `{orders}` itself")), "{said}");
        }
    }
    assert_eq!(letters(&processor, &orders)["open"], 0);
}

#[test]
fn letters_of_connect_become_letters_of_an_embedded_pipeline() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(
        dir.path(),
        &world::config("kind = \"embedded\"", &pipeline_lines("payments"), &stub.url),
    );
    let dlq = kafka::name("dlq-connect");
    kafka::create(&dlq, 1);
    let connect = |n: u64| Raw {
        partition: 0,
        // A tombstone is a message too.
        value: (n != 3).then(|| order(n)),
        key: Some(vec![0, 255, n as u8]),
        headers: vec![
            text("__connect.errors.topic", "payments"),
            text("__connect.errors.partition", "2"),
            text("__connect.errors.offset", &n.to_string()),
            text("__connect.errors.connector.name", "jdbc-sink"),
            text("__connect.errors.exception.class.name", "org.apache.kafka.connect.errors.DataException"),
            text("__connect.errors.exception.message", "bad"),
            text(
                "__connect.errors.exception.stacktrace",
                "org.apache.kafka.connect.errors.DataException: bad\n\tat a.b.C.d(C.java:1)\n",
            ),
        ],
    };
    kafka::produce_raw(&dlq, (0..10).map(connect));
    let address = kafka::address();
    let import = ["dlq", "import", "--topic", &dlq, "--pipeline", "payments", "--brokers", &address];
    let said = good(&processor, &import);
    assert!(said.contains("10 understood (__connect.errors.topic/partition/offset"), "{said}");
    assert!(said.contains("imported 10   already there 0"), "{said}");
    assert!(good(&processor, &import).contains("imported 0   already there 10"));
    let shown = good(&processor, &["dlq", "show", "payments", "payments/2/3"]);
    assert!(shown.contains("DataException"), "{shown}");

    // Keys that are not text survive a round trip through a file.
    let exported = stdout(&processor.cli(&["dlq", "export", "payments"]));
    std::fs::write(processor.dir.join("out.ndjson"), exported).unwrap();
    let said = good(&processor, &["dlq", "import", "--file", "out.ndjson", "--pipeline", "payments"]);
    assert!(said.contains("imported 0   already there 10"), "{said}");
    good(&processor, &["dlq", "replay", "payments", "--all"]);
    assert!((0..10).filter(|n| *n != 3).all(|n| stub.has_applied(&format!("o-{n}"))));
}

/// Share groups write pointers: the messages are fetched from their topic, and missing ones are named.
#[test]
fn pointers_of_share_groups_are_followed_and_what_is_gone_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, processor, orders) = on_kafka(dir.path());
    let (shared, dlq) = (kafka::name("shared"), kafka::name("dlq.shared"));
    kafka::create(&shared, 1);
    kafka::create(&dlq, 1);
    kafka::produce_raw(
        &shared,
        (0..12).map(|n| Raw {
            partition: 0,
            key: Some(b"c-1".to_vec()),
            value: Some(order(n)),
            headers: vec![text("x-src", "web")],
        }),
    );
    kafka::delete_before(&shared, 0, 4);
    let pointer = |offset: u64| Raw {
        partition: 0,
        key: None,
        value: None,
        headers: vec![
            text("__dlq.errors.topic", &shared),
            text("__dlq.errors.partition", "0"),
            text("__dlq.errors.offset", &offset.to_string()),
            text("__dlq.errors.group", "billing"),
            text("__dlq.errors.delivery.count", "5"),
            text("__dlq.errors.message", "Offset delivery count exceeded the threshold."),
        ],
    };
    // One of them is duplicated, as Kafka may do.
    kafka::produce_raw(
        &dlq,
        (0..12).filter(|offset| offset % 2 == 1 || *offset < 4).chain([11]).map(pointer),
    );
    let import = ["dlq", "import", "--topic", &dlq, "--dialect", "kip1191", "--pipeline", &orders];
    let (code, said) = run(&processor, &import);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("9 records read: 5 understood") && said.contains("4 gone from their topic"),
        "{said}"
    );
    assert!(said.contains(&format!("4 × the message is gone: {shared}/0/0..3")), "{said}");
    assert!(said.contains("imported 4   already there 1"), "{said}");
    let shown = good(&processor, &["dlq", "show", &orders, "o-7"]);
    assert!(shown.contains("delivery count exceeded") && shown.contains("x-src"), "{shown}");
    good(&processor, &["dlq", "replay", &orders, "--all"]);
    assert!([5, 7, 9, 11].iter().all(|n| stub.has_applied(&format!("o-{n}"))));
}
