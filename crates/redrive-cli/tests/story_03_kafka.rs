//! Story 3, a Kafka team puts Redrive in front of an existing service: topics checked and created with the printed
//! commands, a batch with failures, a poison record, letters readable with kcat, and an audit by records.
#![cfg(feature = "kafka")]

mod world;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use serde_json::{Value, json};
use world::process::{Processor, redrive, stderr, stdout};
use world::receiver::{OK, Receiver, Reply, UNAVAILABLE};
use world::stub::Stub;
use world::{free_port, kafka, wait_for};

const REFUSED: Reply = ("422 Unprocessable Content", "redrive-reason: no_lines\r\n");

fn config(pipeline: &str, url: &str, topics: &str, more: &str) -> String {
    let engine = kafka::engine_at(&kafka::address(), &format!("{pipeline}-delivery"), topics);
    let lines = format!("source = \"{pipeline}\"\nid     = \"json:/order_id\"\njitter = \"none\"\n{more}");
    world::config(&engine, &lines, url)
}

/// A topic with `partitions` partitions that contains orders `o-0` to `o-(count-1)`.
fn topic_with(count: u32, partitions: i32) -> String {
    let topic = kafka::name("orders");
    kafka::create(&topic, partitions);
    kafka::produce(
        &topic,
        (0..count).map(|n| (format!("c-{}", n % 7), json!({"order_id": format!("o-{n}")}).to_string())),
    );
    topic
}

/// Runs `redrive ARGS` with a configuration in the directory, whether or not a processor runs.
fn run(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let ran = redrive(dir).args(args).output().unwrap();
    (ran.status.code(), stdout(&ran) + &stderr(&ran))
}

fn figures(processor: &Processor, pipeline: &str) -> Value {
    processor.get(&format!("/v1/pipelines/{pipeline}")).json()
}

#[test]
fn a_missing_topic_stops_the_start_and_the_printed_commands_make_it() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let orders = topic_with(5, 2);
    let text = config(&orders, &receiver.url(), "verify", r#"tiers = ["1s", "5s"]"#)
        .replace("@DIR@", &dir.path().join("data").display().to_string())
        .replace("@LISTEN@", &format!("127.0.0.1:{}", free_port()));
    std::fs::write(dir.path().join("redrive.toml"), text).unwrap();

    let (code, said) = run(dir.path(), &["processor"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("topic {orders}.retry.1s is missing")), "{said}");
    assert!(said.contains("redrive check --kafka"), "{said}");

    let (code, said) = run(dir.path(), &["check", "--kafka"]);
    assert_eq!(code, Some(1), "{said}");
    let missing = format!(
        "✗ topic {orders}.retry.1s is missing (also {orders}.retry.5s, {orders}.replay, {orders}.DLQ, "
    );
    assert!(said.contains(&missing), "{said}");
    for part in [
        "create them with:",
        "--partitions 2 --replication-factor 1 \\",
        "--config retention.ms=-1 --config retention.bytes=-1 --config max.message.bytes=33980928",
        "ACLs needed",
        "is new and begins with the earliest record",
        "SASL PLAIN",
        "one broker lost: its partitions are unavailable until it returns",
        "✓ service answers: POST http://127.0.0.1:",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert_eq!(
        receiver.requests().iter().filter(|request| request.head.starts_with("POST")).count(),
        0,
        "consumed"
    );

    commands(&said).iter().for_each(|command| tool(command));
    // A broker learns of new topics with a delay.
    let mut said = String::new();
    wait_for("the broker to know all topics", || {
        let (code, checked) = run(dir.path(), &["check", "--kafka"]);
        let is_missing = checked.contains(" is missing");
        assert!(code == Some(0) || is_missing, "{checked}");
        said = checked;
        !is_missing
    });
    assert!(said.contains("✓ 6 topics with 2 partitions each and "), "{said}");
}

/// Runs one of Kafka's own tools, as a person would type it.
fn tool(command: &str) {
    let ran = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka.sh"))
        .arg("run")
        .args(command.split_whitespace())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{command}: {}{}", stdout(&ran), stderr(&ran));
}

/// The commands of a check, one line each.
fn commands(said: &str) -> Vec<String> {
    let mut lines = said.lines().map(str::trim);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(first) = line.strip_suffix('\\').filter(|line| line.starts_with("kafka-topics.sh")) {
            found.push(format!("{first} {}", lines.next().unwrap_or_default()));
        }
    }
    assert_eq!(found.len(), 7, "{said}");
    found
}

/// S0-9.
#[test]
fn of_a_thousand_records_the_two_hundred_that_fail_come_twice_and_the_others_once() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|request| {
        let number: u32 = request.id().strip_prefix("o-").unwrap().parse().unwrap();
        let first = request.header("redrive-attempt") == Some("1");
        if number.is_multiple_of(5) && first { UNAVAILABLE } else { OK }
    });
    let orders = topic_with(1_000, 4);
    let processor = Processor::start(
        dir.path(),
        &config(&orders, &receiver.url(), "create", r#"tiers = ["200ms", "1s"]"#),
    );
    wait_for("a thousand successes", || figures(&processor, &orders)["succeeded"] == 1_000);
    let mut times: HashMap<String, u32> = HashMap::new();
    for request in receiver.requests() {
        *times.entry(request.id().to_owned()).or_default() += 1;
    }
    let with = |count: u32| times.values().filter(|times| **times == count).count();
    assert_eq!((times.len(), with(1), with(2)), (1_000, 800, 200));
    let request = &receiver.requests_for("o-8")[0];
    assert_eq!(request.body, r#"{"order_id":"o-8"}"#);
    assert_eq!(request.header("redrive-key"), Some("c-1"));

    // A pipeline with a topic accepts no messages over HTTP.
    let refused = processor.post(&format!("/v1/pipelines/{orders}/messages"), r#"{"payload":1}"#);
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.json()["hint"].as_str().unwrap().contains(&format!("the topic {orders}")), "{refused:?}");
}

#[test]
fn a_poison_record_holds_up_no_other_and_its_letter_is_readable_with_kcat() {
    let dir = tempfile::tempdir().unwrap();
    let order = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&order);
    let receiver = Receiver::start(move |request| {
        seen.lock().unwrap().push(request.id().to_owned());
        match request.id() {
            "o-0" => UNAVAILABLE,
            "o-1" => REFUSED,
            _ => OK,
        }
    });
    // One partition: all messages wait for the same one.
    let orders = topic_with(300, 1);
    let processor =
        Processor::start(dir.path(), &config(&orders, &receiver.url(), "create", r#"tiers = ["4s", "5s"]"#));
    wait_for("two letters", || figures(&processor, &orders)["letters"]["open"] == 2);
    let order = order.lock().unwrap().clone();
    let attempts: Vec<usize> = (0..order.len()).filter(|at| order[*at] == "o-0").collect();
    assert_eq!(attempts.len(), 3, "{order:?}");
    let last_good = order.iter().rposition(|id| !["o-0", "o-1"].contains(&id.as_str())).unwrap();
    assert!(last_good < attempts[2], "good records waited for a poison one: {order:?}");
    assert_eq!(order.iter().filter(|id| *id == "o-1").count(), 1, "a permanent failure was tried again");

    let ran = Command::new("kcat")
        .args(["-C", "-e", "-q", "-b", &kafka::address(), "-t", &format!("{orders}.DLQ"), "-f", "%k %s %h\n"])
        .output()
        .expect("kcat is there; scripts/tools.sh installs it");
    let letters = stdout(&ran);
    let of = |id: &str| letters.lines().find(|line| line.contains(&format!("x-message-id={id},"))).unwrap();
    let refused = of("o-1");
    for part in [
        "c-1 {\"order_id\":\"o-1\"}",
        &format!("x-orig-topic={orders}"),
        "x-orig-partition=0",
        "x-orig-offset=1",
        "x-attempts=1",
        "x-first-seen=1",
        "x-last-error=422 Unprocessable Entity: no_lines",
        "x-error-class=permanent",
        "x-reason=permanent",
        "x-attempt-errors=[{\"n\":1,",
        "\"kind\":\"status\",\"status\":422,\"code\":\"no_lines\"",
    ] {
        assert!(refused.contains(part), "{part} is not in {refused}");
    }
    let worn = of("o-0");
    assert!(worn.contains("x-attempts=3") && worn.contains("x-reason=max_retries"), "{worn}");

    let shown = processor.cli(&["dlq", "show", &orders, &format!("{orders}/0/1")]);
    assert!(stdout(&shown).contains(&format!("{orders}/0/1")), "{}{}", stdout(&shown), stderr(&shown));
}

#[test]
fn two_processes_share_the_work_and_the_audit_reads_the_records() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let stub = Stub::start(one.path(), &["--fail-rate", "15%"]);
    let orders = kafka::name("orders");
    kafka::create(&orders, 4);
    let text = config(&orders, &stub.url, "create", r#"tiers = ["200ms", "1s"]"#);
    let first = Processor::start(one.path(), &text);
    let _second = Processor::start(two.path(), &text);
    wait_for("both to have partitions", || {
        let (_, said) = run(one.path(), &["status", &orders, "--members", "--json"]);
        let said: Value = serde_json::from_str(&said).unwrap_or_default();
        let members = said["members"].as_array().cloned().unwrap_or_default();
        members.len() == 2
            && members.iter().all(|member| member["partitions"].as_array().is_some_and(|p| p.len() == 2))
    });
    let (code, said) = run(one.path(), &["status", &orders, "--members"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("MEMBER") && said.contains("0-1") && said.contains("2-3"), "{said}");
    assert!(!said.contains("different settings"), "{said}");

    let broker = kafka::address();
    let listen = format!("127.0.0.1:{}", free_port());
    let producer =
        ["producer", "--brokers", &broker, "--topic", &orders, "--rate", "1000", "--count", "2000"];
    let (code, said) = run(one.path(), &[&producer[..], &["--listen", &listen]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("accepted 2000  duplicates 0"), "{said}");

    let audit = || {
        let (code, said) = run(one.path(), &["audit", &orders, "--applied", &stub.url, "--json", "-q"]);
        (code, serde_json::from_str::<Value>(&said).unwrap_or_else(|_| panic!("{said}")))
    };
    wait_for("everything to have ended", || audit().1["pending"] == 0);
    let (code, found) = audit();
    assert_eq!(code, Some(0), "{found}");
    let dead = found["dead"]["open"].as_u64().unwrap();
    assert_eq!(found["produced"], 2_000, "{found}");
    assert_eq!(found["succeeded"].as_u64().unwrap() + dead, 2_000, "{found}");
    assert!(dead > 0 && found["missing"] == 0 && found["lost"] == json!([]), "{found}");
    let by_api = figures(&first, &orders)["letters"]["open"].as_u64().unwrap();
    assert_eq!(by_api, dead, "each process mirrors all letters");

    let (code, said) = run(one.path(), &["audit", &orders, "--applied", &stub.url]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("by reading {orders} (records, not offsets)")), "{said}");
    assert!(said.contains("range lost to retention   none"), "{said}");
    let (code, said) = run(one.path(), &["audit", &orders, "--applied", &stub.url, "--ids", "o-0..o-2000"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("    o-2000\n"), "what nobody has is named: {said}");

    // A record deleted by retention does not count as a success.
    let cut = one.path().join("cut.json");
    let offsets = json!({"version": 1, "partitions": [{"topic": orders, "partition": 0, "offset": 10}]});
    std::fs::write(&cut, offsets.to_string()).unwrap();
    tool(&format!(
        "kafka-delete-records.sh --bootstrap-server {broker} --offset-json-file {}",
        cut.display()
    ));
    let (code, said) = run(one.path(), &["audit", &orders, "--applied", &stub.url]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("range lost to retention   {orders}/0/0..9")), "{said}");
}

/// The client library cannot read a header whose name is not text. That must cost one letter, not the partition.
#[test]
fn a_record_that_cannot_be_a_message_becomes_a_letter_and_the_next_one_is_delivered() {
    use std::os::unix::ffi::OsStrExt as _;

    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let orders = kafka::name("orders");
    kafka::create(&orders, 1);
    let strange = std::ffi::OsStr::from_bytes(b"\xff\xfe=1");
    let mut kcat = Command::new("kcat")
        .args(["-P", "-b", &kafka::address(), "-t", &orders, "-H"])
        .arg(strange)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut kcat.stdin.take().unwrap(), b"{}\n").unwrap();
    assert!(kcat.wait().unwrap().success());
    kafka::produce(&orders, [("c-1".to_owned(), json!({"order_id": "o-1"}).to_string())]);
    let processor =
        Processor::start(dir.path(), &config(&orders, &receiver.url(), "create", r#"tiers = ["1s"]"#));
    wait_for("the good one", || receiver.requests_for("o-1").len() == 1);
    wait_for("the letter", || figures(&processor, &orders)["letters"]["open"] == 1);
    let letter = processor.get(&format!("/v1/pipelines/{orders}/letters")).json()["letters"][0].clone();
    assert_eq!((&letter["reason"], &letter["origin"]), (&json!("corrupt"), &json!(format!("{orders}/0/0"))));
}
