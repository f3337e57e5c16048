//! Story 7, the deletion: the contents of a customer's letters are gone from every file, while the actor is still
//! recorded.

mod world;

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::json;
use world::erasing::{LETTERS, SECRET, letters_are_erased_for_good, payload};
use world::process::{Processor, redrive, stderr, stdout};
use world::receiver::{OK, Receiver};
use world::stub::Stub;
use world::wait_for;

fn config(url: &str) -> String {
    let lines = r#"name   = "orders"
tiers  = ["100ms", "200ms"]
jitter = "none"
[pipeline.guard]
share  = "100%"          # all of them are to be dead"#;
    world::config("kind = \"embedded\"", lines, url)
}

fn dead(processor: &Processor) {
    for n in 0..LETTERS {
        let body = format!("{{\"id\":\"o-{n}\",\"payload\":{}}}", payload(n));
        assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    }
    wait_for("all of them to be dead", || {
        processor.get("/v1/pipelines/orders").json()["letters"]["open"] == json!(LETTERS)
    });
}

#[test]
fn letters_are_erased_from_every_file_and_the_record_stays() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let mut processor = Processor::start(dir.path(), &config(&stub.url));
    dead(&processor);
    let said = letters_are_erased_for_good(dir.path(), &mut processor, "orders");
    assert_eq!(said.lines().count(), 1, "nothing remains elsewhere: {said}");
    let compacted = processor.cli(&["dlq", "compact", "orders"]);
    assert_eq!(stdout(&compacted), "deleted 0 records of letters that are done\n", "{}", stderr(&compacted));
}

#[test]
fn an_erasure_needs_a_reason_a_selection_and_the_scope_of_an_administrator() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    dead(&processor);
    for (args, said) in [
        (&["--all", "--reason", " "][..], "--reason is empty"),
        (&["--all"], "--reason"),
        (&["--reason", "ticket"], "erase needs a selection of letters"),
    ] {
        let wrong = processor.cli(&[&["dlq", "erase", "orders"], args].concat());
        assert_eq!(wrong.status.code(), Some(2), "{args:?} {}", stderr(&wrong));
        assert!(stderr(&wrong).contains(said), "{args:?} {}", stderr(&wrong));
    }
    let path = "/v1/pipelines/orders/letters/erase";
    assert_eq!(processor.post(path, r#"{"all":true}"#).status, 400, "a reason is needed");
    assert_eq!(processor.get("/v1/pipelines/orders").json()["letters"]["open"], json!(LETTERS));
}

#[test]
fn what_a_pipeline_redacts_is_shown_nowhere_and_delivered_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let fixed = Arc::new(AtomicBool::new(false));
    let is_fixed = Arc::clone(&fixed);
    let receiver =
        Receiver::start(move |_| if is_fixed.load(SeqCst) { OK } else { ("422 Unprocessable Entity", "") });
    let redacting =
        config(&receiver.url()).replace("jitter = ", "redact = [\"/email\", \"header:x-user\"]\njitter = ");
    let processor = Processor::start(dir.path(), &redacting);
    let payload =
        format!(r#"{{"order_id":"o-0","amount":-1,"email":"{SECRET}","big":12345678901234567890.10}}"#);
    let body =
        format!(r#"{{"id":"o-0","key":"{SECRET}","headers":{{"x-user":"Erika M."}},"payload":{payload}}}"#);
    assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    wait_for("it to be dead", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == json!(1));
    // It is delayed by a day, so that there is a pending message too.
    let late = body.replace("o-0", "o-1").replacen('{', "{\"delay\":\"24h\",", 1);
    assert_eq!(processor.post("/v1/pipelines/orders/messages", &late).status, 202);
    let group =
        processor.get("/v1/pipelines/orders/groups").json()["groups"][0]["id"].as_str().unwrap().to_owned();
    for path in [
        "letters?payload=true",
        "letters",
        "letters/orders/0",
        "messages?payload=true",
        "messages/o-1",
        "messages/o-0",
        &format!("groups/{group}"),
    ] {
        let shown = processor.get(&format!("/v1/pipelines/orders/{path}"));
        let text = shown.json().to_string();
        assert_eq!(shown.status, 200, "{path} {text}");
        assert!(!text.contains(SECRET) && !text.contains("Erika M."), "{path} {text}");
    }
    let exported = stdout(&processor.cli(&["dlq", "export", "orders"]));
    let letter: serde_json::Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(letter["redacted"], json!(["/email", "header:x-user"]), "{letter}");
    let shown = letter["payload"]["utf8"].as_str().unwrap();
    assert!(shown.contains("12345678901234567890.10") && shown.contains("[redacted]"), "{shown}");
    assert_eq!(letter["options"]["tiers"], json!(["100ms", "200ms"]), "the policy it died under: {letter}");
    let edit = ["dlq", "edit", "orders", "--all", "--set", "/email=\"a@example.com\"", "--dry-run"];
    let difference = stdout(&processor.cli(&edit));
    assert!(difference.contains("1 letter") && !difference.contains(SECRET), "{difference}");
    // The stored message is the one received.
    assert!(!world::erasing::files_with_the_secret(dir.path()).is_empty());
    let found =
        stdout(&processor.cli(&["dlq", "inspect", "orders", "--filter", &format!("payload.email:{SECRET}")]));
    assert!(found.contains("o-0"), "{found}");
    // So is the delivered one.
    fixed.store(true, SeqCst);
    let replayed = processor.cli(&["dlq", "replay", "orders", "--all"]);
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    let requests = receiver.requests_for("o-0");
    assert_eq!(requests.last().unwrap().body, payload, "as it came in");
}

/// `kill -9` while letters are being marked: the next start completes the request, and the log records what was done.
#[test]
fn an_erasure_that_is_killed_is_finished_at_the_next_start_and_its_record_is_true() {
    let count = 4_000_u64;
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let mut processor = Processor::start(dir.path(), &config(&stub.url));
    let lines: Vec<String> =
        (0..count).map(|n| format!("{{\"id\":\"o-{n}\",\"payload\":{}}}", payload(0))).collect();
    let sent = processor.post_as("/v1/pipelines/orders/messages", "application/x-ndjson", &lines.join("\n"));
    assert_eq!(sent.status, 202);
    let letters = |processor: &Processor| processor.get("/v1/pipelines/orders").json()["letters"].clone();
    wait_for("all of them to be dead", || letters(&processor)["open"] == json!(count));
    let mut command = redrive(dir.path());
    command.args(["--url", &processor.url(""), "dlq", "erase", "orders", "--all", "--reason", "ticket 881"]);
    let mut asked = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the first letters to be erased", || letters(&processor)["erased"] != json!(0));
    processor.kill();
    asked.wait().unwrap();
    processor.restart();
    wait_for("all of them to be erased", || letters(&processor)["erased"] == json!(count));
    let log = || -> Vec<serde_json::Value> {
        let lines = stdout(&processor.cli(&["audit", "orders", "--actions", "--json"]));
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    wait_for("the record to be whole", || log()[0].get("unfinished").is_none());
    let log = log();
    assert_eq!((log.len(), &log[0]["action"], &log[0]["letters"]), (1, &json!("erase"), &json!(count)));
    wait_for("no file to hold it", || world::erasing::files_with_the_secret(dir.path()).is_empty());
}

/// A receiver that quotes the refused value, percent-encoded and in another case; and an edit that replaces the value,
/// so that it is no longer at any redacted place.
#[test]
fn a_value_that_the_receiver_quotes_and_an_edit_has_replaced_is_on_no_route_and_in_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let quoted = "redrive-reason: refused-Erika.Mustermann%40example.com\r\n";
    let receiver = Receiver::start(move |_| ("422 Unprocessable Entity", quoted));
    let redacting =
        config(&receiver.url()).replace("jitter = ", "redact = [\"/email\", \"header:x-user\"]\njitter = ");
    let processor = Processor::start(dir.path(), &redacting);
    let body = format!(
        r#"{{"id":"o-0","key":"{SECRET}","tenant":"{SECRET}","headers":{{"x-user":"Erika M.","x-trace":"a=ERIKA.MUSTERMANN%40EXAMPLE.COM"}},"payload":{{"email":"{SECRET}","note":"for erika.mustermann\\u0040example.com","amount":1}}}}"#
    );
    assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    wait_for("it to be dead", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == json!(1));
    let hidden = |what: &str, text: &str| {
        let text = text.to_lowercase();
        for spelled in ["mustermann", "erika", "m\\u0075stermann", "zxjpa2eubxvzdgvybwfub"] {
            assert!(!text.contains(spelled), "{what} shows {spelled}: {text}");
        }
    };
    let look = |when: &str| {
        let groups = processor.get("/v1/pipelines/orders/groups").json();
        let group = groups["groups"][0]["id"].as_str().unwrap().to_owned();
        for path in [
            "pipelines/orders",
            "pipelines/orders/letters?payload=true",
            "pipelines/orders/letters",
            "pipelines/orders/letters/orders/0",
            "pipelines/orders/letters/stats",
            "pipelines/orders/groups",
            &format!("pipelines/orders/groups/{group}"),
            "pipelines/orders/messages/o-0",
            "replays",
            "actions",
        ] {
            let shown = processor.get(&format!("/v1/{path}"));
            assert_eq!(shown.status, 200, "{path} {}", shown.json());
            hidden(&format!("{path}, {when}"), &shown.json().to_string());
        }
        for command in [
            &["dlq", "show", "orders", "orders/0"][..],
            &["dlq", "show", "orders", "orders/0", "--json"],
            &["dlq", "inspect", "orders"],
            &["dlq", "export", "orders"],
            &["dlq", "export", "orders", "--redact", "/email"],
            &["dlq", "groups", "orders"],
            &["dlq", "groups", "orders", &group],
            &["dlq", "groups", "orders", "--by", "tenant"],
            &["dlq", "replay", "orders", "--all", "--dry-run", "--show", "superseded"],
            &["dlq", "edit", "orders", "--all", "--set", "/note=\"n\"", "--dry-run"],
            &["dlq", "edit", "orders", "--all", "--set", "/email=\"n\"", "--dry-run"],
            &["status", "orders"],
            &["audit", "orders", "--actions"],
        ] {
            let ran = processor.cli(command);
            assert!(ran.status.success(), "{command:?} {}", stderr(&ran));
            hidden(&format!("{command:?}, {when}"), &format!("{}{}", stdout(&ran), stderr(&ran)));
        }
        hidden(&format!("the log, {when}"), &processor.log());
    };
    look("as it died");
    let shown = processor.get("/v1/pipelines/orders/letters/orders/0").json();
    assert_eq!(shown["error"], json!("422 [redacted]"), "{shown}");
    assert_eq!(
        (&shown["key"], &shown["history"][0]["status"]),
        (&json!("[redacted]"), &json!(422)),
        "{shown}"
    );

    // Redacted values cannot be guessed piece by piece, but can be matched as a whole.
    for filter in ["error:erika", "payload.email:%3E5"] {
        let refused = processor.get(&format!("/v1/pipelines/orders/letters?filter={filter}"));
        assert_eq!(refused.status, 400, "{filter} {}", refused.json());
    }
    let known = format!("payload.email:{SECRET}");
    let replay = ["dlq", "replay", "orders", "--filter", &known, "--rate", "1/h", "--detach"];
    assert!(processor.cli(&replay).status.success());
    wait_for("it to die again", || {
        let letters = processor.get("/v1/pipelines/orders").json()["letters"].clone();
        letters["open"] == json!(1) && letters["replaying"] == json!(0)
    });
    for value in ["\"second@example.com\"", "\"third@example.com\""] {
        let edit = ["dlq", "edit", "orders", "--all", "--set", &format!("/email={value}")];
        let edited = processor.cli(&edit);
        assert!(edited.status.success(), "{}", stderr(&edited));
    }
    look("after two edits");
    let shown = processor.get("/v1/pipelines/orders/letters/orders/0").json().to_string();
    assert!(!shown.contains("second@") && !shown.contains("third@"), "{shown}");
}
