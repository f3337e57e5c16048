//! Story 15, coming from another framework, without Kafka: letters of a file become letters of an embedded pipeline,
//! exactly once despite kills, and can be used like any other.

mod world;

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use world::process::{Processor, redrive, stderr, stdout};
use world::stub::Stub;
use world::wait_for;

fn start(dir: &std::path::Path) -> (Stub, Processor) {
    let stub = Stub::start(dir, &[]);
    let lines = "name = \"orders\"\nid = \"json:/order_id\"\ntiers = [\"100ms\"]\njitter = \"none\"";
    let processor = Processor::start(dir, &world::config("kind = \"embedded\"", lines, &stub.url));
    (stub, processor)
}

fn letters(processor: &Processor) -> Value {
    processor.get("/v1/pipelines/orders").json()["letters"].clone()
}

/// Exit code and output of a command.
fn run(processor: &Processor, args: &[&str]) -> (Option<i32>, String) {
    let ran = processor.cli(args);
    (ran.status.code(), format!("{}{}", stdout(&ran), stderr(&ran)))
}

fn good(processor: &Processor, args: &[&str]) -> String {
    let (code, said) = run(processor, args);
    assert_eq!(code, Some(0), "{args:?}: {said}");
    said
}

fn import(processor: &Processor) -> (Option<i32>, String) {
    run(processor, &["dlq", "import", "--file", "letters.ndjson", "--pipeline", "orders"])
}

/// A letter as a user's own program might write it.
fn line(n: u64) -> String {
    let error = format!(
        "org.springframework.dao.QueryTimeoutException: order {n} took {n} ms\n\tat com.example.Orders.load(Orders.java:{n})"
    );
    let letter = json!({
        "origin": format!("orders/0/{n}"), "error": error, "exception": "org.springframework.dao.QueryTimeoutException",
        "attempts": 3, "created": "2026-11-01T08:00:00Z", "failed_at": "2026-11-01T08:05:00Z", "key": format!("c-{}", n % 7),
        "headers": {"x-src": "web", "kafka_dlt-exception-stacktrace": error},
        "payload": {"json": {"order_id": format!("o-{n}"), "amount": 5}},
    });
    format!("{letter}\n")
}

fn write(processor: &Processor, lines: &str) {
    std::fs::write(processor.dir.join("letters.ndjson"), lines).unwrap();
}

/// Like with a topic, where each such record is listed with its offset.
#[test]
fn lines_that_a_named_framework_does_not_understand_are_listed_and_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (_stub, processor) = start(dir.path());
    let spring = |offset: &str| {
        json!({ "payload": {"json": {"order_id": format!("o-{offset}")}}, "headers": {
            "kafka_dlt-original-topic": "orders", "kafka_dlt-original-partition": "7", "kafka_dlt-original-offset": offset,
            "kafka_dlt-exception-fqcn": "com.example.Late", "kafka_dlt-exception-message": "no stock",
        }})
        .to_string()
    };
    let bare =
        json!({ "payload": {"json": {"order_id": "o-bare"}}, "headers": {"x-src": "web"} }).to_string();
    write(&processor, &[spring("1182"), bare, spring("later")].join("\n"));
    let named = ["dlq", "import", "--file", "letters.ndjson", "--pipeline", "orders", "--dialect", "spring"];
    for (args, done) in [(&["--dry-run"][..], "would import 1"), (&[], "imported 1")] {
        let (code, said) = run(&processor, &[&named[..], args].concat());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("{done}   already there 0   refused 2")), "{said}");
        let no_header = "refused line 2: not understood as spring: no header kafka_dlt-original-topic; ";
        assert!(said.contains(no_header), "{said}");
        let no_number = "refused line 3: not understood as spring: the header kafka_dlt-original-offset is not a number; ";
        assert!(said.contains(no_number), "{said}");
    }
    wait_for("the figures", || letters(&processor)["open"] == 1);
}

#[test]
fn letters_of_a_file_are_imported_once_edited_by_hand_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor) = start(dir.path());
    let lines: String = (0..30).map(line).collect();
    write(&processor, &format!("{lines}\n{{\"paylod\":1}}\n"));
    let dry = ["dlq", "import", "--file", "letters.ndjson", "--pipeline", "orders", "--dry-run"];
    let (code, said) = run(&processor, &dry);
    assert_eq!(code, Some(1), "a dry run ends as the import would: {said}");
    assert!(said.contains("31 letters read"), "{said}");
    assert!(said.contains("would import 30   already there 0   refused 1"), "{said}");
    let group = "org.springframework.dao.QueryTimeoutException at com.example.Orders.load";
    assert!(said.contains(&format!("would be 1 group; largest: 30 × {group}")), "{said}");
    assert_eq!(letters(&processor)["open"], 0);

    let (code, said) = import(&processor);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("imported 30   already there 0   refused 1"), "{said}");
    assert!(said.contains("refused line 32: there is no `payload`"), "{said}");
    processor.kill();
    processor.restart();
    let (_, said) = import(&processor);
    assert!(said.contains("imported 0   already there 30   refused 1"), "{said}");
    wait_for("the figures", || letters(&processor)["open"] == 30);

    // Grouped, listed, shown with its stack trace, discarded and restored like any other.
    let groups = good(&processor, &["dlq", "groups", "orders"]);
    assert!(groups.contains("imported") && groups.contains("30 open in 1 group"), "{groups}");
    let shown = good(&processor, &["dlq", "show", "orders", "o-7"]);
    assert!(shown.contains("at com.example.Orders.load(Orders.java:7)") && shown.contains("c-0"), "{shown}");
    let found = good(&processor, &["dlq", "inspect", "orders", "--filter", "reason:imported key:c-1"]);
    assert!(found.contains("5 shown"), "{found}");
    let discarded = good(&processor, &["dlq", "discard", "orders", "--ids", "o-3", "--reason", "x"]);
    assert!(discarded.starts_with("discarded 1"), "{discarded}");
    good(&processor, &["dlq", "undo", "orders", "d-1"]);

    // Exported, edited by hand, and imported again: unchanged letters already exist.
    let exported = processor.cli(&["dlq", "export", "orders"]);
    let exported = stdout(&exported);
    assert_eq!(exported.lines().count(), 30);
    write(&processor, &exported);
    let (code, said) = import(&processor);
    assert_eq!((code, said.contains("imported 0   already there 30")), (Some(0), true), "{said}");
    let edited = exported.replacen("\\\"amount\\\":5", "\\\"amount\\\":7", 1);
    assert_ne!(edited, exported);
    write(&processor, &edited);
    let said = import(&processor).1;
    assert!(said.contains("imported 1   already there 29"), "{said}");
    wait_for("the figures", || letters(&processor)["open"] == 31);

    let replayed = good(&processor, &["dlq", "replay", "orders", "--all"]);
    assert!(replayed.contains("succeeded 31"), "{replayed}");
    assert!((0..30).all(|n| stub.has_applied(&format!("o-{n}"))));
    let actions = good(&processor, &["audit", "orders", "--actions", "--json"]);
    let actions: Vec<Value> = actions.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let imports: Vec<&Value> = actions.iter().filter(|line| line["action"] == "import").collect();
    assert_eq!(imports.len(), 2, "what is there already is no action: {actions:?}");
    assert_eq!((&imports[0]["letters"], &imports[0]["note"]), (&json!(30), &json!("file letters.ndjson")));
    assert!(imports[0]["actor"].is_string(), "{imports:?}");
}

/// The processor is killed during an import: answered letters are stored, and the same command completes the import.
#[test]
fn an_import_that_is_cut_short_is_run_again_and_imports_each_letter_once() {
    const LETTERS: u64 = 6_000;
    let dir = tempfile::tempdir().unwrap();
    let (_stub, mut processor) = start(dir.path());
    let lines: Vec<String> = (0..LETTERS).map(line).collect();
    write(&processor, &lines.concat());
    // The second half is sent after the kill, however fast the first one is imported.
    let mut cut = redrive(&processor.dir)
        .args(["dlq", "import", "--file", "-", "--pipeline", "orders"])
        .args(["--url", &processor.url("")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = cut.stdin.take().unwrap();
    stdin.write_all(lines[..3_000].concat().as_bytes()).unwrap();
    wait_for("some letters", || letters(&processor)["open"].as_u64().is_some_and(|open| open >= 500));
    processor.kill();
    // The command may have given up before reading all of it.
    let _ = stdin.write_all(lines[3_000..].concat().as_bytes());
    drop(stdin);
    assert!(!cut.wait().unwrap().success());
    processor.restart();
    let there = letters(&processor)["open"].as_u64().unwrap();
    assert!((500..LETTERS).contains(&there), "{there}");
    let (code, said) = import(&processor);
    assert_eq!(code, Some(0), "{said}");
    wait_for("the figures", || letters(&processor)["open"] == LETTERS);
    let told: Value = serde_json::from_str(&good(
        &processor,
        &["dlq", "import", "--file", "letters.ndjson", "--pipeline", "orders", "--json"],
    ))
    .unwrap();
    assert_eq!((&told["imported"], &told["already_there"]), (&json!(0), &json!(LETTERS)));
    wait_for("the figures", || letters(&processor)["open"] == LETTERS);
}

#[test]
fn what_cannot_be_imported_is_refused_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (_stub, processor) = start(dir.path());
    for (args, expected) in [
        (&["dlq", "import", "--pipeline", "orders"][..], "--topic"),
        (&["dlq", "import", "--file", "none.ndjson", "--pipeline", "orders"], "none.ndjson"),
        (&["dlq", "import", "--topic", "t", "--dialect", "sprang", "--pipeline", "orders"], "spring"),
        (&["dlq", "import", "--topic", "t", "--pipeline", "orders"], "--brokers"),
    ] {
        let (code, said) = run(&processor, args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    write(&processor, &line(1));
    let (code, said) =
        run(&processor, &["dlq", "import", "--file", "letters.ndjson", "--pipeline", "ordres"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("did you mean `orders`"), "{said}");
}
