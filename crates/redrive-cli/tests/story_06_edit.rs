//! Story 6, the edit: a dry run with the difference, the edit, its undo, and a replay of the edited letters.

mod world;

use std::process::Stdio;

use serde_json::{Value, json};
use world::edits::{
    FRENCH, GERMAN, a_letter_that_goes_on_under_a_new_id_counts_once,
    an_edit_asks_for_the_id_and_removes_what_it_is_told_to, letters_are_edited_replayed_and_undone, payload,
};
use world::process::{Processor, redrive, stderr, stdout};
use world::stub::Stub;
use world::wait_for;

fn config(url: &str) -> String {
    format!(
        r#"
[engine]
kind = "embedded"
dir  = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name   = "orders"
tiers  = ["100ms", "200ms"]
jitter = "none"
timeout = "2s"
[pipeline.guard]
share  = "100%"          # all of them are to be dead
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

fn dead(processor: &Processor, messages: &[(String, String)]) {
    for (id, payload) in messages {
        let body = format!("{{\"id\":\"{id}\",\"payload\":{payload}}}");
        assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    }
    let count = messages.len();
    wait_for("all of them to be dead", || {
        processor.get("/v1/pipelines/orders").json()["letters"]["open"] == json!(count)
    });
}

#[test]
fn letters_are_edited_with_a_dry_run_replayed_and_undone() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    let messages: Vec<_> = (0..GERMAN + FRENCH).map(|n| (format!("o-{n}"), payload(n))).collect();
    dead(&processor, &messages);
    letters_are_edited_replayed_and_undone(&stub, processor, "orders");
}

#[test]
fn what_is_not_json_is_named_and_another_way_is_offered() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    // Not JSON, and sent as bytes. A cancelled message becomes a letter.
    let body = json!({ "id": "raw", "payload_base64": "bm8ganNvbg==", "delay": "1h" }).to_string();
    assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    assert_eq!(processor.post("/v1/pipelines/orders/messages/raw/cancel", "").status, 200);
    wait_for("it to be dead", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == 1);
    let edited = processor.cli(&["dlq", "edit", "orders", "--all", "--set", "/amount=1"]);
    assert_eq!(edited.status.code(), Some(1), "{}{}", stdout(&edited), stderr(&edited));
    let text = stdout(&edited);
    assert!(text.starts_with("edited 0 letters\n1 is not JSON, left unchanged: orders/0\n"), "{text}");
    assert!(text.contains("redrive dlq export orders --filter id:MESSAGE"), "{text}");
    assert!(text.contains("redrive dlq import --file letters.ndjson --pipeline orders"), "{text}");
    // Its headers can still be changed.
    let headers = processor.cli(&["dlq", "edit", "orders", "--all", "--set-header", "x-src=desk"]);
    assert_eq!(stdout(&headers), "edited 1 letter   edit e-1\n");
    let shown = stdout(&processor.cli(&["dlq", "show", "orders", "raw"]));
    assert!(shown.contains("headers  x-src=desk\noriginal headers (none)"), "{shown}");
    for (args, said) in [
        (&["--all", "--set", "/amount=EUR"][..], "a text needs quotes"),
        (&["--all", "--where", "region", "--set", "/a=1"], "is not a JSON pointer"),
        (&["--set", "/a=1"], "edit needs a selection of letters"),
        (
            &["--all"],
            "no change given\n  give --set /path=json, --unset, --jq, --set-header or --unset-header;",
        ),
        (&["--all", "--set", "/a=1", "--same-id", "--new-id"], "cannot be used with"),
        (&["--ids", "raw", "--undo", "e-1"], "cannot be used with"),
        (&["--all", "--undo", "e-1"], "cannot be used with"),
        (&["--filter", "id:raw", "--undo", "e-1"], "cannot be used with"),
        (&["--all", "--unset", "/n", "--set", "/n=1"], "/n is changed twice"),
        (&["--all", "--set", "/n=1", "--set", "/n=2"], "/n is changed twice"),
        (&["--all", "--set-header", "X-A=1", "--unset-header", "x-a"], "header x-a is changed twice"),
        (&["--all", "--set-header", "bad name=1"], "the name may have"),
        (&["--all", "--set-header", "host=a"], "never sent"),
    ] {
        let wrong = processor.cli(&[&["dlq", "edit", "orders"], args].concat());
        assert_eq!(wrong.status.code(), Some(2), "{args:?} {}", stderr(&wrong));
        assert!(stderr(&wrong).contains(said), "{args:?} {}", stderr(&wrong));
    }
}

/// `kill -9` during an edit: the record names the letters that have it, not those that were planned.
#[test]
fn an_edit_that_is_killed_is_recorded_at_the_next_start_with_the_letters_that_have_it() {
    let count = 16_000;
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let mut processor = Processor::start(dir.path(), &config(&stub.url));
    let lines: Vec<String> =
        (0..count).map(|n| format!("{{\"id\":\"o-{n}\",\"payload\":{}}}", payload(n))).collect();
    for part in lines.chunks(4_000) {
        let sent =
            processor.post_as("/v1/pipelines/orders/messages", "application/x-ndjson", &part.join("\n"));
        assert_eq!(sent.status, 202);
    }
    wait_for("all of them to be dead", || {
        processor.get("/v1/pipelines/orders").json()["letters"]["open"] == json!(count)
    });
    let edited = |processor: &Processor| {
        let found = processor.get("/v1/pipelines/orders/letters?filter=edit:e-1&limit=1").json();
        !found["letters"].as_array().unwrap().is_empty()
    };
    let mut command = redrive(dir.path());
    command.args(["--url", &processor.url(""), "dlq", "edit", "orders", "--all", "--set", "/amount=5"]);
    let mut asked = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the first letters to be edited", || edited(&processor));
    processor.kill();
    asked.wait().unwrap();
    processor.restart();
    let log = || -> Vec<Value> {
        let lines = stdout(&processor.cli(&["audit", "orders", "--actions", "--json"]));
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    wait_for("the record to be whole", || log()[0].get("unfinished").is_none());
    let log = log();
    assert_eq!(
        (log.len(), &log[0]["action"], &log[0]["note"]),
        (1, &json!("edit"), &json!("16,000 planned"))
    );
    assert!((1..count).contains(&log[0]["letters"].as_u64().unwrap()), "{log:?}");
    let undone = stdout(&processor.cli(&["dlq", "edit", "--undo", "e-1", "--json"]));
    let undone: Value = serde_json::from_str(&undone).unwrap();
    assert_eq!((&undone["restored"], &undone["skipped"]), (&log[0]["letters"], &json!(0)), "{undone}");
    assert!(!edited(&processor), "a letter has an edit that the record does not name");
}

/// `kill -9` during a discard, and during its undo: the next start completes the request, and the log records what was
/// done.
#[test]
fn a_discard_and_its_undo_that_are_killed_are_finished_at_the_next_start_and_their_records_are_true() {
    let count = 20_000_u64;
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let mut processor = Processor::start(dir.path(), &config(&stub.url));
    let lines: Vec<String> =
        (0..count).map(|n| format!("{{\"id\":\"o-{n}\",\"payload\":{}}}", payload(0))).collect();
    for part in lines.chunks(5_000) {
        let sent =
            processor.post_as("/v1/pipelines/orders/messages", "application/x-ndjson", &part.join("\n"));
        assert_eq!(sent.status, 202);
    }
    let letters = |processor: &Processor| processor.get("/v1/pipelines/orders").json()["letters"].clone();
    wait_for("all of them to be dead", || letters(&processor)["open"] == json!(count));
    let kill_during = |processor: &mut Processor, args: &[&str], has_begun: &dyn Fn(&Value) -> bool| {
        let mut command = redrive(dir.path());
        command.args(["--url", &processor.url(""), "dlq"]).args(args);
        let mut asked = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the first letters to change", || has_begun(&letters(processor)));
        processor.kill();
        asked.wait().unwrap();
        processor.restart();
    };
    let finished = |processor: &Processor| {
        let log = || -> Vec<Value> {
            let lines = stdout(&processor.cli(&["audit", "orders", "--actions", "--json"]));
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        wait_for("the records to be whole", || log().iter().all(|action| action.get("unfinished").is_none()));
        let told = log();
        told.iter().map(|action| (action["action"].clone(), action["letters"].clone())).collect::<Vec<_>>()
    };
    let discard = ["discard", "orders", "--all", "--reason", "ticket 881"];
    kill_during(&mut processor, &discard, &|letters| letters["open"] != json!(count));
    assert_eq!(finished(&processor), [(json!("discard"), json!(count))]);
    wait_for("none to be open", || letters(&processor)["open"] == json!(0));
    kill_during(&mut processor, &["undo", "d-1"], &|letters| letters["open"] != json!(0));
    assert_eq!(finished(&processor), [(json!("discard"), json!(count)), (json!("undo"), json!(count))]);
    wait_for("all of them to be open", || letters(&processor)["open"] == json!(count));
}

/// A refusal must not lose a text written in the editor.
#[test]
fn a_text_from_the_editor_is_never_lost_to_a_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    let body = json!({ "id": "o-1", "payload": { "n": 1 }, "delay": "1h" }).to_string();
    assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    assert_eq!(processor.post("/v1/pipelines/orders/messages/o-1/cancel", "").status, 200);
    wait_for("it to be dead", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == 1);
    // Another user edits the letter while the editor is open.
    let (program, url) = (env!("CARGO_BIN_EXE_redrive"), processor.url(""));
    let other = format!("{program} --url {url} dlq edit orders --ids o-1 --set /m=2 >&2; sed -i s/1/7/");
    let args = ["--url", &url, "dlq", "edit", "orders", "--ids", "o-1"];
    let refused = redrive(dir.path()).env("EDITOR", other).env_remove("VISUAL").args(args).output().unwrap();
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{}{said}", stdout(&refused));
    assert!(stdout(&refused).contains("its payload has changed since it was read"), "{}", stdout(&refused));
    let (_, path) = said.split_once("your text is in ").unwrap_or_else(|| panic!("{said}"));
    assert_eq!(std::fs::read_to_string(path.trim()).unwrap().trim(), r#"{"n":7}"#);
    std::fs::remove_file(path.trim()).unwrap();
}

/// The message id must be decided before the work in the editor.
#[test]
fn an_ambiguous_letter_is_refused_before_the_editor_opens() {
    let dir = tempfile::tempdir().unwrap();
    // A receiver that reads a request and closes the connection without an answer.
    let receiver = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", receiver.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in receiver.incoming() {
            let _ = stream.and_then(|mut stream| std::io::Read::read(&mut stream, &mut [0; 4096]));
        }
    });
    let processor = Processor::start(dir.path(), &config(&url));
    let body = json!({ "id": "o-1", "payload": { "n": 1 } }).to_string();
    assert_eq!(processor.post("/v1/pipelines/orders/messages", &body).status, 202);
    wait_for("an attempt without an answer", || {
        let message = processor.get("/v1/pipelines/orders/messages/o-1").json();
        message["history"].as_array().is_some_and(|history| !history.is_empty())
    });
    wait_for("it to be a letter", || {
        processor.post("/v1/pipelines/orders/messages/o-1/cancel", "");
        processor.get("/v1/pipelines/orders").json()["letters"]["open"] == 1
    });
    let opened = dir.path().join("opened");
    let editor = format!("touch {}; sed -i s/1/7/", opened.display());
    let in_editor = |more: &[&str]| {
        let url = processor.url("");
        let args = [&["--url", &url, "dlq", "edit", "orders", "--ids", "o-1"], more].concat();
        redrive(dir.path()).env("EDITOR", &editor).env_remove("VISUAL").args(args).output().unwrap()
    };
    let refused = in_editor(&[]);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("--same-id"), "{}", stderr(&refused));
    assert!(!opened.exists(), "the editor was opened");
    let edited = in_editor(&["--same-id"]);
    assert!(stdout(&edited).starts_with("edited 1 letter"), "{}{}", stdout(&edited), stderr(&edited));
    assert!(opened.exists());
}

/// The displayed letter differs from the stored one: written back, the mask would replace the value.
#[test]
fn a_letter_with_redacted_values_is_refused_before_the_editor_opens() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let config = config(&stub.url).replace("jitter = ", "redact = [\"/card\"]\njitter = ");
    let processor = Processor::start(dir.path(), &config);
    let line = |id: &str, payload: &str| {
        json!({ "message": id, "payload": { "utf8": payload }, "error": "422" }).to_string()
    };
    let lines = [line("o-1", r#"{"n":1,"card":"4111 1111"}"#), line("o-2", r#"{"n":1}"#)];
    std::fs::write(processor.dir.join("letters.ndjson"), lines.join("\n")).unwrap();
    let imported = processor.cli(&["dlq", "import", "--file", "letters.ndjson", "--pipeline", "orders"]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    let opened = dir.path().join("opened");
    let editor = format!("touch {}; sed -i s/1/7/", opened.display());
    let edit = |more: &[&str]| {
        let url = processor.url("");
        let args = [&["--url", &url, "dlq", "edit", "orders"], more].concat();
        redrive(dir.path()).env("EDITOR", &editor).env_remove("VISUAL").args(args).output().unwrap()
    };
    for wrong in [&["--ids", "o-1"][..], &["--ids", "o-1", "--jq", ".n = 7"], &["--all", "--jq", ".n = 7"]] {
        let refused = edit(wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?} {}", stdout(&refused));
        let said = stderr(&refused);
        assert!(said.contains("letter orders/0 has redacted values; use --set"), "{wrong:?} {said}");
    }
    assert!(!opened.exists(), "the editor was opened");
    let edits = |message: &str| {
        let shown = stdout(&processor.cli(&["dlq", "show", "orders", message, "--json"]));
        serde_json::from_str::<Value>(&shown).unwrap()["edits"].clone()
    };
    assert_eq!((edits("o-1"), edits("o-2")), (json!([]), json!([])), "nothing was changed");
    // Without a redacted value a letter can be edited in both ways, and with one by --set.
    for right in
        [&["--ids", "o-2"][..], &["--ids", "o-2", "--jq", ".n = 8"], &["--ids", "o-1", "--set", "/n=7"]]
    {
        let edited = edit(right);
        assert!(stdout(&edited).starts_with("edited 1 letter"), "{}{}", stdout(&edited), stderr(&edited));
    }
    assert!(opened.exists());
}

#[test]
fn a_letter_with_a_new_id_is_found_by_both_and_audited_once() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    a_letter_that_goes_on_under_a_new_id_counts_once(&stub, &processor, "orders");
}

#[test]
fn an_edit_asks_for_the_id_after_an_unknown_end_and_removes_values_and_headers() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    an_edit_asks_for_the_id_and_removes_what_it_is_told_to(&processor, "orders");
}

/// A jq program changes only what it sets: digits, order and spacing of the rest stay.
#[test]
fn letters_are_edited_by_a_jq_program_with_a_dry_run() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    let line = |n: u64, payload: &str| {
        json!({ "message": format!("o-{n}"), "payload": { "utf8": payload }, "error": "422 currency" })
            .to_string()
    };
    let lines = [
        line(0, r#"{ "big": 12345678901234567890, "price": 1.10, "currency":"eur" }"#),
        line(1, r#"{"currency":"EUR"}"#),
        line(2, "plain"),
        line(3, r#"{"currency":7}"#),
    ];
    std::fs::write(processor.dir.join("letters.ndjson"), lines.join("\n")).unwrap();
    assert!(
        processor
            .cli(&["dlq", "import", "--file", "letters.ndjson", "--pipeline", "orders"])
            .status
            .success()
    );
    let edit = ["dlq", "edit", "orders", "--all", "--jq", ".currency |= ascii_upcase"];
    let planned = processor.cli(&[&edit[..], &["--dry-run"]].concat());
    let text = stdout(&planned);
    assert!(
        text.starts_with("1 letter matches. First of 1:   - \"currency\":\"eur\"   + \"currency\":\"EUR\"\n"),
        "{text}{}",
        stderr(&planned)
    );
    let edited = processor.cli(&edit);
    let text = stdout(&edited);
    assert!(
        text.starts_with("edited 1 letter   edit e-1\n1 left unchanged by the jq program\n1 is not JSON"),
        "{text}{}",
        stderr(&edited)
    );
    assert!(text.contains("1 not edited: orders/3 (the jq program failed:"), "{text}");
    let shown = processor.cli(&["dlq", "show", "orders", "o-0", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&stdout(&shown)).unwrap();
    assert_eq!(
        shown["payload"]["utf8"], r#"{ "big": 12345678901234567890, "price": 1.10, "currency":"EUR" }"#,
        "digit for digit"
    );
    let undone = processor.cli(&["dlq", "edit", "--undo", "e-1"]);
    assert_eq!(stdout(&undone), "undone 1   (their messages are as before)\n");
    for (program, said) in [(".a |", "column 5"), ("test(\"x\")", "test/1")] {
        let wrong = processor.cli(&["dlq", "edit", "orders", "--all", "--jq", program]);
        assert_eq!(wrong.status.code(), Some(2), "{}", stdout(&wrong));
        assert!(stderr(&wrong).contains(said), "{}", stderr(&wrong));
    }
}

/// A program that exceeds its limits ends with an error that says why, and nothing else is affected.
#[test]
fn a_jq_program_is_bounded_in_time_memory_and_depth() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let processor = Processor::start(dir.path(), &config(&stub.url));
    dead(&processor, &[("o-0".to_owned(), payload(0))]);
    let run = |program: &str| {
        let ran = processor.cli(&["dlq", "edit", "orders", "--all", "--jq", program]);
        assert_eq!(ran.status.code(), Some(1), "{program}: {}", stderr(&ran));
        stderr(&ran)
    };
    for (program, why) in [
        ("reduce range(64) as $i ([0]; . + .)", "needs more than 768 MB of memory for letter orders/0"),
        ("def f: [f]; f", "too deeply"),
        ("reduce range(1000000) as $i (.; [.])", "too deeply"),
        ("def f: f; f", "ran for more than 10 s for letter orders/0"),
        // Either limit, whichever the machine reaches first.
        ("[range(1e12)]", "for letter orders/0"),
    ] {
        let said = run(program);
        assert!(said.contains(why) && said.contains("nothing was changed"), "{program}: {said}");
    }
    let ran = processor.cli(&["dlq", "edit", "orders", "--all", "--jq", "reduce range(200) as $i (.; [.])"]);
    assert!(
        stdout(&ran).contains("1 not edited: orders/0 (the jq program gives a value that is nested"),
        "{}",
        stdout(&ran)
    );
    let actions = stdout(&processor.cli(&["audit", "orders", "--actions", "--json"]));
    assert_eq!(actions, "");
    let edited = processor.cli(&["dlq", "edit", "orders", "--all", "--jq", ".amount = 5"]);
    assert!(stdout(&edited).starts_with("edited 1 letter"), "{}", stderr(&edited));
}
