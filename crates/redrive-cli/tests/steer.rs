//! Messages are sent, listed, made due and cancelled with the binary; the breaker is probed and closed by hand; and all
//! of it is in the action log.

mod world;

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::{Value, json};
use world::process::{Processor, redrive, stderr, stdout};
use world::receiver::{OK, Receiver, UNAVAILABLE};
use world::wait_for;

fn config(url: &str) -> String {
    let lines = r#"name   = "orders"
tiers  = ["1h", "2h"]
jitter = "none"
dedup  = "24h"
[pipeline.guard]
share  = "100%"
[pipeline.breaker]
enabled = false"#;
    world::config("kind = \"embedded\"", lines, url)
}

/// Runs a command that must end with this exit code; returns its output.
fn ran(processor: &Processor, args: &[&str], code: i32) -> (String, String) {
    let output = processor.cli(args);
    let said = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said:?}");
    said
}

fn good(processor: &Processor, args: &[&str]) -> String {
    ran(processor, args, 0).0
}

fn actions(processor: &Processor) -> Vec<(String, String, String)> {
    let all = processor.get("/v1/actions").json()["actions"].clone();
    let text = |action: &Value, name: &str| action[name].as_str().unwrap_or_default().to_owned();
    let actions = all.as_array().unwrap().iter();
    actions.map(|a| (text(a, "action"), text(a, "id"), text(a, "actor"))).collect()
}

/// The rows of a table, as words.
fn rows(table: &str) -> Vec<Vec<String>> {
    let rows = table.lines().skip(1).filter(|line| !line.starts_with("   "));
    rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn a_message_is_sent_with_everything_it_may_have() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let processor = Processor::start(dir.path(), &config(&receiver.url()));
    let flags = [
        "--id",
        "o-1",
        "--key",
        "c-7",
        "--header",
        "x-src=web",
        "--header",
        "x-n=a=b",
        "--tenant",
        "acme",
        "--ttl",
        "1h",
    ];
    let mut args = vec!["send", "orders", r#"{ "amount": 1999 }"#];
    args.extend(flags);
    assert_eq!(good(&processor, &args), "accepted o-1   ready\n");
    wait_for("its delivery", || !receiver.requests_for("o-1").is_empty());
    let request = &receiver.requests_for("o-1")[0];
    assert_eq!(request.body, r#"{ "amount": 1999 }"#, "byte for byte");
    let header = |name: &str| request.header(name).map(str::to_owned);
    assert_eq!(header("redrive-key").as_deref(), Some("c-7"));
    assert_eq!(header("redrive-header-x-src").as_deref(), Some("web"));
    assert_eq!(header("redrive-header-x-n").as_deref(), Some("a=b"));

    // Known ids are no error; their state is printed.
    wait_for("its end", || good(&processor, &["message", "o-1"]).contains("state succeeded"));
    assert_eq!(good(&processor, &args), "duplicate o-1   succeeded\n");
    let sent: Value = serde_json::from_str(&good(&processor, &["send", "orders", "x", "--json"])).unwrap();
    assert_eq!((&sent["state"], &sent["duplicate"]), (&json!("ready"), &json!(false)));

    // From a file, from stdin, and many at once.
    std::fs::write(dir.path().join("payload"), [0xff, 0x00]).unwrap();
    assert_eq!(
        good(&processor, &["send", "orders", "--file", "payload", "--id", "f-1"]),
        "accepted f-1   ready\n"
    );
    let piped = |args: &[&str], input: &str| {
        let mut command = redrive(dir.path());
        let command = command.args(["--url", &processor.url("")]).args(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), stdout(&output), stderr(&output))
    };
    let (code, said, _) = piped(&["send", "orders", "-", "--id", "s-1"], "from stdin");
    assert_eq!((code, said.as_str()), (Some(0), "accepted s-1   ready\n"));
    let lines = "{\"id\":\"n-1\"}\n\n{\"id\":\"n-2\"}\n{\"id\":\"o-1\"}\n";
    let (code, said, _) = piped(&["send", "orders", "--ndjson"], lines);
    assert_eq!((code, said.as_str()), (Some(0), "accepted 2   duplicates 1\n"));
    let (code, said, error) = piped(&["send", "orders", "--ndjson"], "{\"id\":\"n-3\"}\n{\"idd\":\"n-4\"}\n");
    assert_eq!((code, said.as_str()), (Some(2), ""), "{error}");
    assert!(error.contains("line 2") && error.contains("nothing was accepted"), "{error}");

    // Invalid values are refused by the command, or by the processor.
    let far = ran(&processor, &["send", "orders", "x", "--due", "9999-12-31"], 2).1;
    assert!(far.contains("`due` is"), "{far}");
    let far = ran(&processor, &["send", "orders", "x", "--due", "9999-12-31T00:00:00Z"], 2).1;
    assert!(far.contains("more than 365 days ahead") && far.contains("at the latest"), "{far}");
    ran(&processor, &["send", "orders"], 2);
    ran(&processor, &["send", "orders", "x", "--delay", "1s", "--due", "2026-11-15T00:00:00Z"], 2);
    ran(&processor, &["send", "nowhere", "x"], 2);
}

#[test]
fn what_waits_is_listed_made_due_and_cancelled_through_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let fixed = Arc::new(AtomicBool::new(false));
    let is_fixed = Arc::clone(&fixed);
    let receiver = Receiver::start(move |_| if is_fixed.load(SeqCst) { OK } else { UNAVAILABLE });
    let mut processor = Processor::start(dir.path(), &config(&receiver.url()));
    for n in 1..=4 {
        let id = format!("o-{n}");
        good(&processor, &["send", "orders", "{\"amount\":1}", "--id", &id, "--key", "c-7"]);
    }
    good(&processor, &["send", "orders", "x", "--id", "later/1", "--delay", "8760h"]);
    let pending = |processor: &Processor| processor.get("/v1/pipelines/orders").json()["pending"].clone();
    wait_for("four to fail once", || pending(&processor)["delayed"] == 5);

    let listed = good(&processor, &["messages", "orders"]);
    let head: Vec<&str> = listed.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["MESSAGE", "NUMBER", "STATE", "KEY", "ATTEMPTS", "AGE", "DUE", "CLASS", "ERROR"]);
    assert_eq!(rows(&listed).len(), 5, "{listed}");
    let first = &rows(&listed)[0];
    assert_eq!(first[..5], ["o-1", "orders/0", "delayed", "c-7", "1"], "{listed}");
    assert!(listed.contains("in 59m") && listed.contains("503 Service Unavailable"), "{listed}");
    assert!(listed.ends_with("   5 shown\n"), "{listed}");
    let some = good(
        &processor,
        &["messages", "orders", "--filter", "attempts:>=1 -id:o-2", "--limit", "2", "--json"],
    );
    let some: Value = serde_json::from_str(&some).unwrap();
    assert_eq!(some["messages"].as_array().unwrap().len(), 2);
    assert!(some["next"].as_str().is_some_and(|next| next.starts_with("delayed.")), "{some}");
    assert_eq!(good(&processor, &["messages", "orders", "--state", "in_flight"]), "no messages match\n");
    let wrong = ran(&processor, &["messages", "orders", "--filter", "reason:gone"], 2).1;
    assert!(wrong.contains("`reason` is a field of dead letters"), "{wrong}");
    let wrong = processor.get("/v1/pipelines/orders/messages?cursor=17");
    assert_eq!((wrong.status, wrong.json()["code"].as_str()), (400, Some("bad_request")));

    // One message by its id, with its history.
    let shown = good(&processor, &["message", "o-1"]);
    assert!(
        shown.starts_with("message  o-1   pipeline orders   state delayed   attempts 1   due in 59m ("),
        "{shown}"
    );
    assert!(
        shown.contains("attempts 1  ") && shown.contains("transient  503 Service Unavailable"),
        "{shown}"
    );
    let shown: Value = serde_json::from_str(&good(&processor, &["message", "o-1", "--json"])).unwrap();
    assert_eq!((&shown["pipeline"], &shown["history"][0]["class"]), (&json!("orders"), &json!("transient")));
    let unknown = ran(&processor, &["message", "nobody"], 2).1;
    assert!(unknown.contains("nobody"), "{unknown}");

    // Cancelled and durable at once: a kill does not bring it back. Ids may hold slashes.
    assert_eq!(
        good(&processor, &["messages", "orders", "cancel", "later/1"]),
        "later/1   cancelled as letter orders/4\n"
    );
    assert_eq!(
        good(&processor, &["messages", "orders", "cancel", "orders/2"]),
        "orders/2   cancelled as letter orders/2\n"
    );
    processor.kill();
    processor.restart();
    let shown = good(&processor, &["dlq", "show", "orders", "later/1"]);
    assert!(shown.contains("reason   cancelled"), "{shown}");
    let again = ran(&processor, &["messages", "orders", "cancel", "later/1"], 1).1;
    assert!(again.contains("is not pending: it is dead as letter orders/4"), "{again}");

    // Made due: it is delivered now that the receiver is back, and the others still wait.
    fixed.store(true, SeqCst);
    assert_eq!(good(&processor, &["messages", "orders", "retry-now", "o-1"]), "o-1   due now\n");
    wait_for("its delivery", || good(&processor, &["message", "o-1"]).contains("state succeeded"));
    wait_for("the count to follow", || pending(&processor)["delayed"] == 2);

    // A filter needs --yes; a message that cannot be changed does not stop the others.
    let counted = ["messages", "orders", "cancel", "--filter", "key:c-7"];
    assert_eq!(good(&processor, &counted), "would change 2\n");
    let (said, _) = ran(&processor, &["messages", "orders", "cancel", "o-2", "nobody", "o-4"], 1);
    assert!(
        said.contains("nobody   not changed: ") && said.ends_with("cancelled 2   not changed 1\n"),
        "{said}"
    );
    assert_eq!(good(&processor, &["messages", "orders"]), "no messages match\n");
    assert_eq!(good(&processor, &["dlq", "stats", "orders"]).matches("cancelled").count(), 1);

    let done: Vec<(String, String, String)> = actions(&processor);
    let done: Vec<(&str, &str)> = done.iter().map(|(action, id, _)| (action.as_str(), id.as_str())).collect();
    let expected = [
        ("cancel", "later/1"),
        ("cancel", "orders/2"),
        ("retry_now", "o-1"),
        ("cancel", "o-2"),
        ("cancel", "o-4"),
    ];
    assert_eq!(done, expected);
}

#[test]
fn a_breaker_is_probed_and_closed_by_hand_and_on_record() {
    let dir = tempfile::tempdir().unwrap();
    let fixed = Arc::new(AtomicBool::new(false));
    let is_fixed = Arc::clone(&fixed);
    let receiver = Receiver::start(move |_| if is_fixed.load(SeqCst) { OK } else { UNAVAILABLE });
    let lines = r#"name   = "orders"
tiers  = ["1s"]
jitter = "none"
[pipeline.breaker]
fast = { window = "10s", failures = "50%", min = 4 }
cooldown = "1h"
cooldown_max = "1h""#;
    let processor =
        Processor::start(dir.path(), &world::config("kind = \"embedded\"", lines, &receiver.url()));
    let closed = ran(&processor, &["breaker", "probe", "orders"], 1).1;
    assert!(closed.contains("the breaker of `orders` is closed"), "{closed}");
    for n in 0..8 {
        good(&processor, &["send", "orders", "x", "--id", &format!("o-{n}")]);
    }
    let state = || processor.get("/v1/pipelines/orders").json()["breaker"].as_str().unwrap().to_owned();
    wait_for("the breaker to open", || state() == "open");
    let shown = good(&processor, &["messages", "orders", "--state", "held"]);
    assert!(!rows(&shown).is_empty(), "{shown}");
    assert_eq!(good(&processor, &["messages", "orders", "--state", "delayed"]), "no messages match\n");

    let before = receiver.requests().len();
    good(&processor, &["breaker", "probe", "orders"]);
    wait_for("a probe", || receiver.requests().len() > before);
    wait_for("it to be open again", || state() == "open");
    fixed.store(true, SeqCst);
    let status = good(&processor, &["breaker", "close", "orders"]);
    assert!(status.starts_with("pipeline orders"), "{status}");
    wait_for("all to be delivered", || processor.get("/v1/pipelines/orders").json()["succeeded"] == 8);
    assert!(processor.log().contains("breaker closed by hand"), "{}", processor.log());
    let done: Vec<String> = actions(&processor).into_iter().map(|(action, ..)| action).collect();
    assert_eq!(done, ["breaker_probe", "breaker_close"]);
    assert!(actions(&processor).iter().all(|(.., actor)| !actor.is_empty()));
}

/// A bare number is ambiguous once a message has it as its id; the full id never is.
#[test]
fn a_letter_has_a_name_that_no_message_id_can_take() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| UNAVAILABLE);
    let processor = Processor::start(dir.path(), &config(&receiver.url()));
    for id in ["a", "0"] {
        good(&processor, &["send", "orders", "x", "--id", id, "--delay", "1h"]);
        good(&processor, &["messages", "orders", "cancel", id]);
    }
    let bare = ran(&processor, &["dlq", "show", "orders", "0"], 1).1;
    assert!(bare.contains("`orders/0`") && bare.contains("`orders/1`"), "{bare}");
    for (letter, message) in [("orders/0", "a"), ("orders/1", "0")] {
        let shown = good(&processor, &["dlq", "show", "orders", letter]);
        assert!(shown.contains(&format!("message {message} ")), "{shown}");
        let shown = processor.get(&format!("/v1/pipelines/orders/letters/{letter}")).json();
        assert_eq!((&shown["id"], &shown["message"]), (&json!(letter), &json!(message)));
    }
}
