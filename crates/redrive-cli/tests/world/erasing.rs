//! Erasing letters, for every engine: the same commands, the same output.

use std::path::Path;

use serde_json::{Value, json};

use super::process::{Processor, stderr, stdout};
use super::wait_for;

pub const SECRET: &str = "erika.mustermann@example.com";
pub const LETTERS: u64 = 6;

/// The payload of the order with this number; the stub refuses negative amounts. Two of them belong to one customer.
pub fn payload(n: u64) -> String {
    let email = if n.is_multiple_of(3) { SECRET.to_owned() } else { format!("c-{n}@example.com") };
    format!(r#"{{"order_id":"o-{n}","amount":-1,"email":"{email}"}}"#)
}

fn good(processor: &Processor, args: &[&str]) -> String {
    let ran = processor.cli(args);
    assert!(ran.status.success(), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

fn stats(processor: &Processor, pipeline: &str) -> Value {
    serde_json::from_str(&good(processor, &["dlq", "stats", pipeline, "--json"])).unwrap()
}

/// All files below a directory that contain the secret.
pub fn files_with_the_secret(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with_the_secret(&path));
        } else if std::fs::read(&path)
            .is_ok_and(|b| b.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Erases letters on a processor with [`LETTERS`] open ones. Returns the output of the command.
pub fn letters_are_erased_for_good(dir: &Path, processor: &mut Processor, pipeline: &str) -> String {
    assert!(!files_with_the_secret(dir).is_empty(), "the test would see it");
    let filter = format!("payload.email:{SECRET}");
    let erase = ["dlq", "erase", pipeline, "--filter", &filter, "--reason", "GDPR ticket 881"];
    let planned = good(processor, &[&erase[..], &["--dry-run"]].concat());
    assert!(planned.starts_with("would erase 2   for good"), "{planned}");
    assert_eq!(stats(processor, pipeline)["open"], json!(LETTERS));

    let done = good(processor, &erase);
    assert!(done.starts_with("erased 2   (for good; letters only; tombstones stay)\n"), "{done}");
    assert_eq!(files_with_the_secret(dir), Vec::<String>::new());
    // After a crash too.
    processor.kill();
    processor.restart();
    wait_for("the letters to be there", || stats(processor, pipeline)["open"] == json!(LETTERS - 2));
    assert_eq!(stats(processor, pipeline)["erased"], json!(2));
    assert_eq!(files_with_the_secret(dir), Vec::<String>::new());

    let shown = good(processor, &["dlq", "show", pipeline, "o-3", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["state"], &shown["payload"]), (&json!("erased"), &Value::Null), "{shown}");
    assert_eq!(shown["headers"]["redrive-erased-because"], json!("GDPR ticket 881"), "{shown}");
    let listed = good(processor, &["dlq", "inspect", pipeline, "--state", "erased"]);
    assert!(listed.contains("o-0") && listed.contains("o-3") && !listed.contains("o-1"), "{listed}");
    let exported = good(processor, &["dlq", "export", pipeline, "--state", "all"]);
    assert!(exported.lines().count() as u64 == LETTERS && !exported.contains(SECRET), "{exported}");

    let log = good(processor, &["audit", pipeline, "--actions", "--json"]);
    let erased: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|action: &Value| action["action"] == "erase")
        .collect();
    assert_eq!(erased.len(), 1, "{log}");
    assert_eq!((&erased[0]["letters"], &erased[0]["note"]), (&json!(2), &json!("GDPR ticket 881")));
    assert!(!log.contains(SECRET), "{log}");

    // An erased letter is neither replayed nor erased again.
    let again = good(processor, &["dlq", "erase", pipeline, "--ids", "o-3", "--reason", "again"]);
    assert!(again.starts_with("erased 0"), "{again}");
    let replay = processor.cli(&["dlq", "replay", pipeline, "--ids", "o-3", "--rate", "20/s"]);
    assert!(!stdout(&replay).contains("succeeded 1"), "{}{}", stdout(&replay), stderr(&replay));
    done
}
