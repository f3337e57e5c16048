//! Story 9 from the first 410 on, with the real binary: endpoints that are gone are not called again, across restarts,
//! until an operator undoes it; stored subscriptions; and no endpoint appears in any output.

#[path = "../../redrive-sinks/tests/push/server.rs"]
#[allow(dead_code, reason = "the tests of the sinks use the rest")]
mod server;
mod world;

use serde_json::{Value, json};
use server::{PlainServer, Reply, key_file};
use tokio::runtime::Runtime;
use world::process::{Processor, TOKEN, stderr, stdout};
use world::wait_for;

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

fn config(dir: &tempfile::TempDir, purge: &str) -> String {
    format!(
        "[engine]\ndir = \"@DIR@\"\n[server]\nlisten = \"@LISTEN@\"\n[[pipeline]]\nname = \"push\"\nprofile = \"push\"\n\
         [pipeline.sink.webpush]\nvapid_key_file = \"{}\"\nsubject = \"mailto:ops@example.com\"\n\
         allow_private_addresses = true\npurge = \"{purge}\"\n",
        key_file(dir, "vapid.pem").display()
    )
}

fn subscription(port: u16, path: &str) -> Value {
    json!({"endpoint": format!("http://127.0.0.1:{port}{path}"), "keys": {"p256dh": P256DH, "auth": AUTH}})
}

fn send(processor: &Processor, id: &str, subscription: &Value) {
    let message = json!({"id": id, "payload": {"subscription": subscription, "payload": {"title": "hi"}}});
    assert_eq!(processor.post("/v1/pipelines/push/messages", &message.to_string()).status, 202, "{id}");
}

fn letters(processor: &Processor) -> Vec<Value> {
    let listed = processor.get("/v1/pipelines/push/letters").json();
    listed["letters"].as_array().cloned().unwrap_or_default()
}

fn cli(processor: &Processor, args: &[&str]) -> Value {
    let args = [&["subscriptions"], args, &["--json"]].concat();
    let output = processor.cli(&args);
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{args:?}: {}", stderr(&output)))
}

#[test]
fn a_purged_subscription_is_not_called_again_over_a_restart_until_it_is_taken_back() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let dir = tempfile::tempdir().unwrap();
    let mut processor = Processor::start(dir.path(), &config(&dir, "at_once"));
    let gone = subscription(server.port, "/wp/gone-0f3a77");
    send(&processor, "first", &gone);
    wait_for("a letter", || letters(&processor).len() == 1);
    send(&processor, "second", &gone);
    wait_for("a second letter", || letters(&processor).len() == 2);
    processor.kill();
    processor.restart();
    send(&processor, "third", &gone);
    wait_for("a third letter", || letters(&processor).len() == 3);
    assert_eq!(server.seen().len(), 1, "one request for three messages");
    assert!(letters(&processor).iter().all(|letter| letter["reason"] == "gone"));

    let listed = cli(&processor, &["list", "push"]);
    let row = &listed["subscriptions"][0];
    let hash = row["endpoint_hash"].as_str().unwrap().to_owned();
    assert_eq!(
        (&row["state"], &row["status"], &row["cause"]),
        (&json!("purged"), &json!(410), &json!("gone"))
    );
    let counts = cli(&processor, &["push"]);
    assert_eq!((&counts["purged"], &counts["flagged"]), (&json!(1), &json!(0)));
    let summary = stdout(&processor.cli(&["subscriptions", "push"]));
    assert!(summary.contains("purged 1"), "{summary}");
    assert_eq!(cli(&processor, &["show", "push", &hash])["state"], "purged");
    let export = stdout(&processor.cli(&["subscriptions", "export", "push"]));
    assert!(export.contains(&hash), "{export}");
    let shown = processor.get("/v1/pipelines/push/letters/third").json().to_string();
    assert!(shown.contains(&hash), "letters carry the hash: {shown}");
    assert!(processor.log().contains(&hash), "{}", processor.log());

    assert_eq!(cli(&processor, &["undo", "push", "--since", "1h"])["undone"], 1);
    send(&processor, "fourth", &gone);
    wait_for("another request", || server.seen().len() == 2);
    let actions = processor.get("/v1/actions").json();
    let undo = actions["actions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&undo["action"], &undo["id"], &undo["subscriptions"]),
        (&json!("subscription_undo"), &json!("since 1h"), &json!(1))
    );
    let audit = stdout(&processor.cli(&["audit", "push", "--actions"]));
    assert!(audit.contains("subscription_undo") && audit.contains("1 subscription"), "{audit}");
    let actions = actions.to_string();

    let listed = listed.to_string();
    for text in [&processor.log(), &listed, &summary, &export, &actions] {
        for hidden in ["0f3a77", "/wp/", AUTH, P256DH] {
            assert!(!text.contains(hidden), "{hidden} is in\n{text}");
        }
    }
}

#[test]
fn by_default_a_gone_subscription_is_flagged_and_a_success_clears_it() {
    let runtime = Runtime::new().unwrap();
    let healed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let heals = std::sync::Arc::clone(&healed);
    let server = runtime.block_on(PlainServer::start(move |_| {
        Reply::of(if heals.load(std::sync::atomic::Ordering::SeqCst) { 201 } else { 404 }, "")
    }));
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &config(&dir, "verify"));
    let one = subscription(server.port, "/wp/one");
    for id in ["a", "b"] {
        send(&processor, id, &one);
    }
    wait_for("two letters", || letters(&processor).len() == 2);
    assert_eq!(server.seen().len(), 2, "what is only flagged is called");
    let counts = cli(&processor, &["push"]);
    assert_eq!((&counts["purged"], &counts["flagged"]), (&json!(0), &json!(1)));
    healed.store(true, std::sync::atomic::Ordering::SeqCst);
    send(&processor, "c", &one);
    wait_for("the flag to go", || cli(&processor, &["push"])["flagged"] == 0);
}

#[test]
fn messages_name_stored_subscriptions_which_remember_their_key() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(201, "")));
    let dir = tempfile::tempdir().unwrap();
    let mut processor = Processor::start(dir.path(), &config(&dir, "verify"));
    let given = subscription(server.port, "/wp/stored-0f3a77").to_string();
    let stored = cli(&processor, &["register", "push", "user-5512/phone", &given]);
    assert_eq!((&stored["ids"], &stored["state"]), (&json!(["user-5512/phone"]), &json!("active")));
    let key = stored["key"].as_str().expect("it was made with the current key").to_owned();
    processor.kill();
    processor.restart();
    send(&processor, "named", &json!("user-5512/phone"));
    wait_for("the push", || server.seen().len() == 1);
    let authorization = server.seen()[0].headers["authorization"].to_str().unwrap().to_owned();
    assert!(authorization.ends_with(&format!("k={key}")), "{authorization}");
    let keys = json!([{"key": key, "subscriptions": 1, "configured": true}]);
    assert_eq!(cli(&processor, &["keys", "push"])["keys"], keys);

    send(&processor, "nobody", &json!("user-1/none"));
    wait_for("a letter", || letters(&processor).len() == 1);
    assert_eq!(letters(&processor)[0]["reason"], "permanent");

    // An operator purges it: the next message is not sent.
    let purged = cli(&processor, &["purge", "push", "user-5512/phone", "--reason", "account closed"]);
    assert_eq!((&purged["state"], &purged["cause"]), (&json!("purged"), &json!("operator")));
    send(&processor, "late", &json!("user-5512/phone"));
    wait_for("a letter", || letters(&processor).len() == 2);
    assert_eq!(server.seen().len(), 1);
    // Registering again brings it back.
    cli(&processor, &["register", "push", "user-5512/phone", &given]);
    send(&processor, "again", &json!("user-5512/phone"));
    wait_for("the push", || server.seen().len() == 2);

    assert_eq!(cli(&processor, &["remove", "push", "user-5512/phone"])["removed"], "user-5512/phone");
    let not_stopped = processor.cli(&["subscriptions", "resume", "push"]);
    assert!(stderr(&not_stopped).contains("purging is not stopped"), "{}", stderr(&not_stopped));
    let actions = processor.get("/v1/actions").json().to_string();
    let export = stdout(&processor.cli(&["subscriptions", "export", "push"]));
    for text in [&processor.log(), &actions, &export] {
        assert!(!text.contains("0f3a77") && !text.contains(AUTH), "{text}");
    }
}

#[test]
fn a_subscription_that_cannot_be_used_is_refused_with_what_is_wrong_and_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &config(&dir, "verify"));
    let body = json!({"id": "u", "subscription": {"endpoint": "https://push.example/0f3a77", "keys": {}}});
    let answer = processor.post("/v1/pipelines/push/subscriptions", &body.to_string());
    assert_eq!(answer.status, 400);
    let said = answer.json().to_string();
    assert!(said.contains("keys.p256dh") && !said.contains("0f3a77"), "{said}");
    let other = subscription(1, "/wp/x");
    let mut other = json!({"id": "u", "subscription": other});
    other["subscription"]["vapid_key"] = json!("BUnknown");
    let answer = processor.post("/v1/pipelines/push/subscriptions", &other.to_string());
    assert_eq!(answer.status, 400);
    assert!(answer.json().to_string().contains("not configured here"));
}

/// Once, a typo was answered as if the change had been made.
#[test]
fn an_endpoint_that_nobody_knows_is_not_found_and_the_hint_names_a_command() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(201, "")));
    let dir = tempfile::tempdir().unwrap();
    let config =
        config(&dir, "verify").replace("profile = \"push\"", "profile = \"push\"\nlog_delivered = \"100%\"");
    let processor = Processor::start(dir.path(), &config);
    let unknown = "hmac-sha256:0123456789abcdef";
    for change in ["flag", "purge", "undo"] {
        let body = json!({"id": unknown, "reason": "odd"});
        let body = if change == "undo" { json!({"id": unknown}) } else { body };
        let answer = processor.post(&format!("/v1/pipelines/push/subscriptions/{change}"), &body.to_string());
        assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("not_found")), "{change}");
        let mut args = vec!["subscriptions", change, "push", unknown];
        if change != "undo" {
            args.extend(["--reason", "odd"]);
        }
        let output = processor.cli(&args);
        let said = stderr(&output);
        assert!(output.status.code().is_some_and(|code| code > 0), "{change}: {said}");
        assert!(said.contains(&format!("no subscription `{unknown}` is known")), "{said}");
        assert!(said.contains("redrive subscriptions list PIPELINE"), "{said}");
    }
    let actions = processor.get("/v1/actions").json();
    assert_eq!(actions["actions"], json!([]), "what was not done is not recorded");

    // An active endpoint is known by the hash in its log line.
    send(&processor, "m-1", &subscription(server.port, "/wp/one"));
    let line = || {
        let log = processor.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["decision"] == "complete")
    };
    wait_for("the line of the push", || line().is_some());
    let hash = line().unwrap()["endpoint_hash"].as_str().unwrap().to_owned();
    assert_eq!(cli(&processor, &["purge", "push", &hash, "--reason", "fraud"])["state"], "purged");
}

#[test]
fn two_ids_of_one_endpoint_are_both_told_of_and_both_come_back() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let owner = runtime.block_on(PlainServer::start(|_| Reply::of(200, "")));
    let dir = tempfile::tempdir().unwrap();
    let config =
        format!("{}on_purged = \"http://127.0.0.1:{}/purged\"\n", config(&dir, "at_once"), owner.port);
    let processor = Processor::start(dir.path(), &config);
    let given = subscription(server.port, "/wp/shared").to_string();
    for id in ["user-1/browser", "user-2/browser"] {
        cli(&processor, &["register", "push", id, &given]);
    }
    send(&processor, "m-1", &json!("user-1/browser"));
    wait_for("the owner to be told of both", || owner.seen().len() == 2);
    let told = owner.seen().into_iter().map(|seen| serde_json::from_slice::<Value>(&seen.body).unwrap());
    let mut told: Vec<_> = told.map(|told| told["subscription_id"].as_str().unwrap().to_owned()).collect();
    told.sort();
    assert_eq!(told, ["user-1/browser", "user-2/browser"]);
    send(&processor, "m-2", &json!("user-2/browser"));
    wait_for("both letters", || letters(&processor).len() == 2);
    assert_eq!(server.seen().len(), 1, "one request for both");
    for id in ["user-1/browser", "user-2/browser"] {
        let row = cli(&processor, &["show", "push", id]);
        assert_eq!(
            (&row["state"], &row["ids"]),
            (&json!("purged"), &json!(["user-1/browser", "user-2/browser"]))
        );
    }
    cli(&processor, &["register", "push", "user-1/browser", &given]);
    assert_eq!(cli(&processor, &["show", "push", "user-2/browser"])["state"], "active");
}

#[test]
fn an_event_type_that_there_is_none_of_is_refused_with_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &config(&dir, "verify"));
    let answer = processor.get("/v1/pipelines/push/events?type=purge");
    assert_eq!(answer.status, 400);
    let said = answer.json().to_string();
    assert!(said.contains("\\\"purge\\\"") && said.contains("purged, cleared"), "{said}");
}

/// Reads a stream of events until `wanted` appears.
fn events_until(port: u16, query: &str, headers: &str, wanted: &str, meanwhile: impl FnOnce()) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(world::PATIENCE)).unwrap();
    let request = format!(
        "GET /v1/pipelines/push/events{query} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {TOKEN}\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    let mut read = |text: &mut String| {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the stream ended: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    };
    while !text.contains("retry: ") {
        read(&mut text);
    }
    meanwhile();
    while !text.contains(wanted) {
        read(&mut text);
    }
    text
}

#[test]
fn what_happens_is_streamed_from_the_last_event_on_and_the_owner_is_told_of_purges() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(410, "")));
    let owner = runtime.block_on(PlainServer::start(|_| Reply::of(200, "")));
    let dir = tempfile::tempdir().unwrap();
    let config =
        format!("{}on_purged = \"http://127.0.0.1:{}/purged\"\n", config(&dir, "at_once"), owner.port);
    let processor = Processor::start(dir.path(), &config);
    let purge = |name: &str| {
        let gone = subscription(server.port, &format!("/wp/{name}-0f3a77"));
        send(&processor, name, &gone);
    };
    let first = events_until(processor.port, "?type=purged", "", "event: purged", || purge("one"));
    assert!(first.contains("text/event-stream") && !first.contains("event: dead_letter"), "{first}");
    let id = first.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    wait_for("the owner to be told", || owner.seen().len() == 1);
    let told: Value = serde_json::from_slice(&owner.seen()[0].body).unwrap();
    assert_eq!(
        (&told["type"], &told["status"], &told["cause"]),
        (&json!("purged"), &json!(410), &json!("gone"))
    );

    wait_for("the letter", || letters(&processor).len() == 1);
    purge("two");
    wait_for("the second letter", || letters(&processor).len() == 2);
    let header = format!("last-event-id: {id}\r\n");
    let rest =
        events_until(processor.port, "?type=purged,dead_letter", &header, "\"message_id\":\"two\"", || {});
    assert_eq!(rest.matches("event: purged").count(), 1, "the first one is not repeated: {rest}");
    let old = events_until(processor.port, "", "last-event-id: 1-1\r\n", "event: purged", || {});
    assert!(old.contains("event: restarted"), "{old}");

    for text in [&first, &rest, &old, &told.to_string(), &processor.log()] {
        assert!(!text.contains("0f3a77") && !text.contains(AUTH), "{text}");
    }
    let shown = stdout(&processor.cli(&["config", "show"]));
    assert!(shown.contains("on_purged") && !shown.contains("/purged\""), "{shown}");
}

#[test]
fn deliveries_are_logged_as_far_as_they_are_asked_for_with_the_fields_of_failures() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(201, "")));
    let dir = tempfile::tempdir().unwrap();
    let config =
        config(&dir, "verify").replace("profile = \"push\"", "profile = \"push\"\nlog_delivered = \"100%\"");
    let processor = Processor::start(dir.path(), &config);
    send(&processor, "m-1", &subscription(server.port, "/wp/one-0f3a77"));
    let delivered = || {
        let log = processor.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.into_iter().find(|line| line["decision"] == "complete")
    };
    wait_for("the line", || delivered().is_some());
    let line = delivered().unwrap();
    assert_eq!(
        (&line["status_code"], &line["message_id"], &line["attempt"]),
        (&json!(201), &json!("m-1"), &json!(1))
    );
    assert!(line["endpoint_hash"].as_str().unwrap().starts_with("hmac-sha256:"), "{line}");
    assert!(
        line["correlation_id"].as_str().unwrap().starts_with("req_") && line["timestamp"].is_string(),
        "{line}"
    );
    assert!(!processor.log().contains("0f3a77"));
}
