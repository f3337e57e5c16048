//! The part of story 6 that edits letters, for every engine: the same commands, the same output.

use serde_json::Value;

use super::process::{Processor, redrive, stderr, stdout};
use super::stub::Stub;
use super::wait_for;

pub const GERMAN: u64 = 8;
pub const FRENCH: u64 = 4;

/// The payload of the order with this number; the stub refuses negative amounts.
pub fn payload(n: u64) -> String {
    let region = if n < GERMAN { "DE" } else { "FR" };
    format!(r#"{{"order_id":"o-{n}","amount":-1,"big":18446744073709551617,"region":"{region}"}}"#)
}

fn good(processor: &Processor, args: &[&str]) -> String {
    let ran = processor.cli(args);
    assert!(ran.status.success(), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

fn json(processor: &Processor, args: &[&str]) -> Value {
    serde_json::from_str(&good(processor, args)).unwrap()
}

fn open(processor: &Processor, pipeline: &str) -> u64 {
    let stats = json(processor, &["dlq", "stats", pipeline, "--json"]);
    stats["open"].as_u64().unwrap()
}

/// The letter of a message, as the API shows it.
fn letter(processor: &Processor, pipeline: &str, message: &str) -> Value {
    json(processor, &["dlq", "show", pipeline, message, "--json"])
}

/// The whole scenario, on a processor with [`GERMAN`] and [`FRENCH`] letters.
pub fn letters_are_edited_replayed_and_undone(stub: &Stub, mut processor: Processor, pipeline: &str) {
    let groups = json(&processor, &["dlq", "groups", pipeline, "--json"]);
    let group = groups["groups"][0]["id"].as_str().unwrap().to_owned();
    let german = ["--group", &group, "--where", "/region == \"DE\"", "--set", "/amount=19.990"];
    let edit = ["dlq", "edit", pipeline];

    let planned = good(&processor, &[&edit[..], &german[..], &["--dry-run"]].concat());
    let lines: Vec<&str> = planned.lines().collect();
    assert_eq!(lines[0], r#"8 letters match. First of 8:   - "amount":-1   + "amount":19.990"#);
    let name =
        lines[1].rsplit("undo: redrive dlq edit --undo ").next().unwrap().trim_end_matches(')').to_owned();
    let safe = "0 have an attempt whose end is unknown, so the same message id is safe.   ";
    assert_eq!(lines[1], format!("{safe}(originals are kept; undo: redrive dlq edit --undo {name})"));
    assert_eq!(letter(&processor, pipeline, "o-1")["payload"]["utf8"], payload(1));

    let done = good(&processor, &[&edit[..], &german[..]].concat());
    assert_eq!(done, format!("edited 8 letters   edit {name}\n"));
    // After a crash too.
    processor.kill();
    processor.restart();
    wait_for("the letters to be there", || open(&processor, pipeline) == GERMAN + FRENCH);
    let shown = letter(&processor, pipeline, "o-1");
    assert_eq!(shown["payload"]["utf8"], payload(1).replace(":-1", ":19.990"), "digit for digit");
    assert_eq!(
        (&shown["edits"][0], &shown["original"]["utf8"]),
        (&Value::from(name.as_str()), &Value::from(payload(1)))
    );
    let text = good(&processor, &["dlq", "show", pipeline, "o-1"]);
    assert!(
        text.contains(&format!("edited   {name}   undo the last one: redrive dlq edit --undo {name}")),
        "{text}"
    );
    assert!(text.contains(&format!("original {}", payload(1))), "{text}");
    let table = good(&processor, &["dlq", "inspect", pipeline, "--filter", &format!("edit:{name}")]);
    assert!(table.contains("8 shown"), "{table}");

    let undone = good(&processor, &["dlq", "edit", "--undo", &name]);
    assert_eq!(undone, "undone 8   (their messages are as before)\n");
    let twice = processor.cli(&["dlq", "edit", "--undo", &name]);
    assert!(stdout(&twice).starts_with("undone 0\n8 undone already, not changed: "), "{}", stdout(&twice));
    assert_eq!(letter(&processor, pipeline, "o-1")["payload"]["utf8"], payload(1));
    let again = good(&processor, &[&edit[..], &german[..]].concat());
    let second = again.trim().rsplit(' ').next().unwrap().to_owned();
    assert_ne!(second, name, "a name is given once");

    // The edited message is replayed: the stub accepts it.
    let replayed = processor.cli(&["dlq", "replay", pipeline, "--edit", &second]);
    assert!(replayed.status.success(), "{}{}", stdout(&replayed), stderr(&replayed));
    wait_for("the edited ones to be applied", || open(&processor, pipeline) == FRENCH);
    assert!((0..GERMAN).all(|n| stub.has_applied(&format!("o-{n}"))));

    // One letter in an editor, and an edit that would make it invalid.
    let in_editor = |editor: &str| {
        let args = ["--url", &processor.url(""), "dlq", "edit", pipeline, "--ids", "o-9"];
        redrive(&processor.dir).env("EDITOR", editor).env_remove("VISUAL").args(args).output().unwrap()
    };
    let broken = in_editor("sed -i s/}//");
    assert_eq!(broken.status.code(), Some(1), "{}", stdout(&broken));
    assert!(
        stderr(&broken).contains("it is not JSON") && stderr(&broken).contains("your text is in"),
        "{}",
        stderr(&broken)
    );
    assert_eq!(stdout(&in_editor("true")), "nothing was changed\n");
    let fixed = in_editor("sed -i s/-1/7/");
    assert!(stdout(&fixed).starts_with("edited 1 letter   edit e-"), "{}{}", stdout(&fixed), stderr(&fixed));
    assert_eq!(letter(&processor, pipeline, "o-9")["payload"]["utf8"], payload(9).replace("-1", "7"));

    let actions = good(&processor, &["audit", pipeline, "--actions", "--json"]);
    let lines: Vec<Value> = actions.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: &str, action: &str| {
        lines.iter().filter(|line| line["id"] == id && line["action"] == action).count()
    };
    assert_eq!((of(&name, "edit"), of(&name, "edit_undo"), of(&second, "edit")), (1, 1, 1), "{actions}");
    let line = lines.iter().find(|line| line["id"] == name.as_str()).unwrap();
    assert_eq!((&line["letters"], &line["fields"]), (&Value::from(8), &serde_json::json!(["/amount"])));

    // An unknown group, and an invalid edit.
    for wrong in [
        &["dlq", "discard", pipeline, "--group", "gzzzzzzz2", "--reason", "x"][..],
        &["dlq", "edit", pipeline, "--group", "gzzzzzzz2", "--set", "/a=1"],
    ] {
        let refused = processor.cli(wrong);
        assert_eq!(refused.status.code(), Some(2), "{}{}", stdout(&refused), stderr(&refused));
        assert!(stderr(&refused).contains("is in group gzzzzzzz2"), "{}", stderr(&refused));
    }
    // A group with open letters, and a condition that matches none of them.
    for wrong in [
        &["edit", pipeline, "--group", &group, "--where", "/region == \"IT\"", "--set", "/a=1"][..],
        &["discard", pipeline, "--group", &group, "--filter", "key:nobody", "--reason", "x"],
        &["erase", pipeline, "--group", &group, "--filter", "key:nobody", "--reason", "x"],
    ] {
        let refused = processor.cli(&[&["dlq"], wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{}{}", stdout(&refused), stderr(&refused));
        let said = format!("are in group {group}, but none of them matches {} '{}'", wrong[4], wrong[5]);
        assert!(stderr(&refused).contains(&said), "{}", stderr(&refused));
    }
    let unknown = processor.cli(&["dlq", "edit", "--undo", "e-999"]);
    let said = format!("pipeline `{pipeline}` has no edit `e-999`\n  `redrive audit {pipeline} --actions`");
    assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
    assert!(stderr(&unknown).contains(&said), "{}", stderr(&unknown));
}

/// A letter whose attempt may have been applied gets a new id by an edit and is replayed: both ids find it, and an
/// audit counts it once.
pub fn a_letter_that_goes_on_under_a_new_id_counts_once(stub: &Stub, processor: &Processor, pipeline: &str) {
    let line = |id: &str, ambiguous: bool| {
        let attempt = serde_json::json!({
            "attempt": 1, "class": "transient", "kind": "timeout", "error": "timeout after 30 s", "counted": true,
            "ambiguous": ambiguous,
        });
        let payload = format!(r#"{{"order_id":"{id}","amount":1}}"#);
        serde_json::json!({ "message": id, "payload": { "utf8": payload }, "history": [attempt] }).to_string()
    };
    let lines = format!("{}\n{}\n", line("o-100", true), line("o-101", false));
    std::fs::write(processor.dir.join("letters.ndjson"), lines).unwrap();
    good(processor, &["dlq", "import", "--file", "letters.ndjson", "--pipeline", pipeline]);
    wait_for("the letters", || open(processor, pipeline) == 2);
    let done = good(processor, &["dlq", "edit", pipeline, "--all", "--set", "/amount=7", "--new-id"]);
    let edit = done.trim().rsplit(' ').next().unwrap();
    let new = format!("o-100~{edit}");
    let audit = |exit: i32| {
        let args = ["audit", pipeline, "--applied", &stub.url, "--ids", "o-100..o-101", "--json", "-q"];
        let ran = processor.cli(&args);
        assert_eq!(ran.status.code(), Some(exit), "{}{}", stdout(&ran), stderr(&ran));
        serde_json::from_str::<Value>(&stdout(&ran)).unwrap()
    };

    for id in ["o-100", &new] {
        let shown = letter(processor, pipeline, id);
        assert_eq!((&shown["message"], &shown["accepted_as"]), (&Value::from(new.as_str()), &"o-100".into()));
    }
    let message = json(processor, &["message", "o-100", "--pipeline", pipeline, "--json"]);
    assert_eq!((&message["state"], &message["continued_as"]), (&"dead".into(), &Value::from(new.as_str())));
    let message = json(processor, &["message", &new, "--pipeline", pipeline, "--json"]);
    assert_eq!((&message["state"], &message["accepted_as"]), (&"dead".into(), &"o-100".into()));
    let found = audit(0);
    assert_eq!((&found["dead"]["open"], &found["missing"]), (&2.into(), &0.into()), "{found}");

    let plan = good(processor, &["dlq", "replay", pipeline, "--all", "--dry-run"]);
    assert!(plan.contains("1 letter has an attempt whose end is unknown"), "{plan}");
    assert!(plan.contains("1 of them has a new message id since an edit"), "{plan}");
    good(processor, &["dlq", "replay", pipeline, "--all", "--ambiguous", "ok"]);
    assert!(stub.has_applied(&new) && stub.has_applied("o-101") && !stub.has_applied("o-100"));
    let found = audit(0);
    let counts = ["produced", "succeeded", "missing", "not_produced", "continued"].map(|name| &found[name]);
    assert_eq!(counts, [2, 2, 0, 0, 1].map(Value::from).each_ref(), "{found}");
}

/// Everything else that an edit may do, on a processor without letters: it asks for the id if an attempt may have been
/// applied, removes values and headers, and runs a jq program; each is undone separately.
pub fn an_edit_asks_for_the_id_and_removes_what_it_is_told_to(processor: &Processor, pipeline: &str) {
    let payload =
        r#"{"order_id":"o-200","amount":1,"draft":true,"currency":"eur","big":12345678901234567890}"#;
    let attempt = serde_json::json!({
        "attempt": 1, "class": "transient", "kind": "timeout", "error": "timeout after 30 s", "counted": true,
        "ambiguous": true,
    });
    let line = serde_json::json!({
        "message": "o-200", "payload": { "utf8": payload }, "headers": { "x-src": "web", "x-trace": "t-1" },
        "history": [attempt],
    });
    std::fs::write(processor.dir.join("letters.ndjson"), line.to_string()).unwrap();
    good(processor, &["dlq", "import", "--file", "letters.ndjson", "--pipeline", pipeline]);
    wait_for("the letter", || open(processor, pipeline) == 1);
    let edit = |more: &[&str]| processor.cli(&[&["dlq", "edit", pipeline, "--ids", "o-200"], more].concat());
    let edited = |more: &[&str]| {
        let ran = edit(&[more, &["--same-id"]].concat());
        let said = stdout(&ran);
        assert!(said.starts_with("edited 1 letter   edit e-"), "{more:?}: {said}{}", stderr(&ran));
        said.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    let refused = edit(&["--set", "/amount=7"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    let said = stdout(&refused) + &stderr(&refused);
    assert!(said.contains("--same-id") && said.contains("--new-id"), "{said}");
    let shown = letter(processor, pipeline, "o-200");
    assert_eq!((&shown["payload"]["utf8"], &shown["edits"]), (&payload.into(), &serde_json::json!([])));

    // The rest stays unchanged, digit for digit.
    let mut expected = payload.replace(r#""amount":1"#, r#""amount":7"#);
    edited(&["--set", "/amount=7"]);
    let shown = letter(processor, pipeline, "o-200");
    assert_eq!((&shown["message"], &shown["payload"]["utf8"]), (&"o-200".into(), &expected.as_str().into()));
    expected = expected.replace(r#""draft":true,"#, "");
    edited(&["--unset", "/draft"]);
    assert_eq!(letter(processor, pipeline, "o-200")["payload"]["utf8"], expected);
    expected = expected.replace("\"eur\"", "\"EUR\"");
    edited(&["--jq", ".currency |= ascii_upcase"]);
    assert_eq!(letter(processor, pipeline, "o-200")["payload"]["utf8"], expected);
    let headers = edited(&["--unset-header", "x-trace"]);
    let shown = letter(processor, pipeline, "o-200");
    assert_eq!(shown["headers"], serde_json::json!({ "x-src": "web" }), "{shown}");
    assert_eq!(
        (&shown["payload"]["utf8"], shown["edits"].as_array().map(Vec::len)),
        (&expected.into(), Some(4))
    );
    good(processor, &["dlq", "edit", "--undo", &headers]);
    let shown = letter(processor, pipeline, "o-200");
    assert_eq!(shown["headers"], serde_json::json!({ "x-src": "web", "x-trace": "t-1" }), "{shown}");
    assert_eq!(shown["original"]["utf8"], payload, "{shown}");
}
