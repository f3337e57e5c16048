//! `make bench-letters` in small: asks every question on both engines and checks the answers, but not the times.
#![cfg(feature = "kafka")]

use std::process::Command;

fn quick(args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive-bench-letters"));
    let output =
        command.arg("--quick").arg("--dir").arg(dir.path().join("data")).args(args).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    text.into_owned()
}

fn assert_complete(text: &str, engine: &str) {
    let lines = [
        "cores: ",
        "commit: ",
        "seed: 17",
        &format!("{engine} 2000 letters: filled at"),
        "start, until all letters are known",
        "groups listed, with a letter of each",
        "counts of status",
        "first page of the largest group",
        "page by a cursor in the middle",
        "memory at the peak",
        "local files",
    ];
    for line in lines {
        assert!(text.contains(line), "`{line}` is missing:\n{text}");
    }
    let groups = text.lines().find(|line| line.starts_with("|   groups  ")).unwrap_or_default();
    assert!(groups.contains(" 40 "), "40 errors are 40 groups: {groups}\n{text}");
}

#[test]
fn two_thousand_letters_are_measured_on_the_embedded_engine() {
    assert_complete(&quick(&["--engine", "embedded"]), "embedded");
}

#[test]
fn two_thousand_letters_are_measured_on_kafka() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kafka/address");
    let brokers = std::env::var("REDRIVE_TEST_KAFKA").or_else(|_| std::fs::read_to_string(file));
    let brokers = brokers.expect("no Kafka: run `make kafka-up`, or set REDRIVE_TEST_KAFKA=host:port");
    assert_complete(&quick(&["--engine", "kafka", "--brokers", brokers.trim()]), "kafka");
}
