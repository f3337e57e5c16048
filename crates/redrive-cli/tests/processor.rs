//! `redrive processor` from start to end, with the real binary: what it refuses, what it prints, how it stops.

mod world;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use world::process::{Processor, TOKEN, redrive, stderr};
use world::receiver::{OK, Receiver, Reply, Request, UNAVAILABLE};
use world::{free_port, http, wait_for};

const MESSAGES: &str = "/v1/pipelines/orders/messages";

/// A configuration of one pipeline, with additional lines for `[server]` and for the webhook.
fn config(url: &str, server: &str, webhook: &str) -> String {
    format!(
        r#"
[engine]
dir = "@DIR@"
[server]
listen = "@LISTEN@"
{server}
[[pipeline]]
name   = "orders"
tiers  = ["50ms", "100ms"]
jitter = "none"
[pipeline.sink.webhook]
url = "{url}"
{webhook}
"#
    )
}

/// Runs a processor that is expected to refuse to start.
fn refused(dir: &Path, args: &[&str]) -> Output {
    redrive(dir).arg("processor").args(args).env_remove("REDRIVE_TOKEN").output().unwrap()
}

/// Answers the first request of a message with `reply`, and every later one with 200.
fn first(reply: Reply) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    move |request| if request.header("redrive-attempt") == Some("1") { reply } else { OK }
}

/// A receiver that never answers its first request, and the number of requests received.
fn hanging() -> (Receiver, Arc<AtomicUsize>) {
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&arrived);
    let receiver = Receiver::start(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            loop {
                std::thread::park();
            }
        }
        OK
    });
    (receiver, arrived)
}

fn post(processor: &Processor, path: &str, token: &str, body: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    http::send("POST", &processor.url(path), &[("authorization", &bearer)], body).status
}

#[test]
fn a_pipeline_from_flags_alone_delivers_and_keeps_its_token_for_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(first(UNAVAILABLE));
    let (port, listen) = port();
    let mut command = redrive(dir.path());
    command
        .args(["processor", "--name", "orders", "--sink-url", &receiver.url()])
        .args(["--tiers", "50ms,100ms", "--jitter", "none", "--dir", "store", "--listen", &listen])
        .env_remove("REDRIVE_TOKEN");
    let mut processor = Processor::run(dir.path(), port, &mut command);

    let file = dir.path().join("store/token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&file).unwrap();
    let message = r#"{"id":"o-1","payload":{"n":1}}"#;
    assert_eq!(post(&processor, MESSAGES, "somebody-elses-token", message), 401);
    assert_eq!(post(&processor, MESSAGES, token.trim(), message), 202);
    wait_for("the second attempt", || receiver.requests_for("o-1").len() == 2);
    assert!(!processor.log().contains(token.trim()), "the token is in no log");

    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

fn port() -> (u16, String) {
    let port = free_port();
    (port, format!("127.0.0.1:{port}"))
}

#[test]
fn in_blocking_mode_a_message_keeps_its_place_and_in_memory_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|request| match (request.id(), request.header("redrive-attempt")) {
        ("a", Some("1")) => UNAVAILABLE,
        _ => OK,
    });
    let (port, listen) = port();
    let mut command = redrive(dir.path());
    command
        .args(["processor", "--engine", "memory", "--name", "orders", "--sink-url", &receiver.url()])
        .args(["--mode", "blocking", "--concurrency", "1", "--tiers", "200ms", "--listen", &listen]);
    let processor = Processor::run(dir.path(), port, &mut command);

    let lines = "{\"id\":\"a\",\"payload\":1}\n{\"id\":\"b\",\"payload\":2}\n";
    assert_eq!(processor.post_as(MESSAGES, "application/x-ndjson", lines).status, 202);
    wait_for("three requests", || receiver.requests().len() == 3);
    let ids: Vec<String> = receiver.requests().iter().map(|request| request.id().to_owned()).collect();
    assert_eq!(ids, ["a", "a", "b"], "b waits behind a, which waits for its retry");
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["processor.log"]);
}

#[test]
fn every_file_that_is_missing_is_named_at_once_and_no_store_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let token = "[[server.token]]\nname = \"ops\"\nscopes = [\"read\"]\nsecret_file = \"no/secret\"";
    let webhook = "ca_file = \"no/ca.pem\"\nheaders = { authorization_file = \"no/header\" }";
    let text = config("https://127.0.0.1:1/hook", token, webhook);
    let text = text.replace("@DIR@", "store").replace("@LISTEN@", "127.0.0.1:0");
    fs::write(dir.path().join("redrive.toml"), text).unwrap();

    let output = refused(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    for part in ["ca_file", "no/ca.pem", "authorization", "no/header", "secret_file", "no/secret", "`ops`"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    for fix in ["openssl rand", "a PEM file with the certificates", "a readable file with the value"] {
        assert!(said.contains(fix), "{fix} is not in: {said}");
    }
    assert!(said.contains("3 errors. Nothing was started"), "{said}");
    assert!(!dir.path().join("store").exists(), "nothing was started");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let url = "http://127.0.0.1:1/hook";
    let output = refused(dir.path(), &["--sink-url", url, "--dir", "store", "--listen", &listen]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("cannot listen on {listen}")), "{}", stderr(&output));
    assert!(stderr(&output).contains("free port"), "{}", stderr(&output));
}

#[test]
fn a_directory_has_one_owner_and_the_second_is_told_who() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let owner = Processor::start(dir.path(), &config(&receiver.url(), "", ""));
    let output = refused(dir.path(), &["--listen", &port().1]);
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    let data = dir.path().join("data").display().to_string();
    assert!(stderr(&output).contains(&data) && stderr(&output).contains("process "), "{}", stderr(&output));
    assert_eq!(owner.get("/readyz").status, 200, "the owner goes on");
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_with_a_way_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "not a directory").unwrap();
    let url = "http://127.0.0.1:1/hook";
    let output = refused(dir.path(), &["--sink-url", url, "--dir", "file/store", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("file/store"), "{}", stderr(&output));
    assert!(stderr(&output).contains("choose another directory"), "{}", stderr(&output));

    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    // Root can read everything.
    if fs::read_dir(&closed).is_err() {
        let output = refused(dir.path(), &["--sink-url", url, "--dir", "closed", "--listen", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("let the user this runs as write there"), "{}", stderr(&output));
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn without_tokens_it_listens_on_loopback_only() {
    let dir = tempfile::tempdir().unwrap();
    let url = "http://127.0.0.1:1/hook";
    let output = refused(dir.path(), &["--sink-url", url, "--dir", "store", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("[[server.token]]"), "{}", stderr(&output));
    assert!(!dir.path().join("store").exists());
}

#[test]
fn a_token_may_do_what_its_scopes_say() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let tokens = [("sender", "ingest"), ("viewer", "read")].map(|(name, scope)| {
        let file = dir.path().join(name);
        fs::write(&file, format!("secret-of-{name}\n")).unwrap();
        let file = file.display();
        format!("[[server.token]]\nname = \"{name}\"\nscopes = [\"{scope}\"]\nsecret_file = \"{file}\"\n")
    });
    let processor = Processor::start(dir.path(), &config(&receiver.url(), &tokens.concat(), ""));
    let message = r#"{"id":"o-1"}"#;
    assert_eq!(post(&processor, MESSAGES, "secret-of-sender", message), 202);
    assert_eq!(post(&processor, MESSAGES, "secret-of-viewer", message), 403);
    assert_eq!(post(&processor, "/v1/pipelines/orders/pause", "secret-of-sender", ""), 403);
    assert_eq!(
        post(&processor, MESSAGES, TOKEN, message),
        401,
        "REDRIVE_TOKEN gives way to the configuration"
    );
    assert!(!dir.path().join("data/token").exists());
}

#[test]
fn redrive_token_is_the_token_and_none_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let processor = Processor::start(dir.path(), &config(&receiver.url(), "", ""));
    assert_eq!(post(&processor, MESSAGES, TOKEN, r#"{"id":"o-1"}"#), 202);
    assert_eq!(post(&processor, MESSAGES, "another-token", r#"{"id":"o-2"}"#), 401);
    assert!(!dir.path().join("data/token").exists());
    assert!(!processor.log().contains(TOKEN));
}

#[test]
fn a_delivery_that_hangs_does_not_outlast_the_drain_and_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (receiver, arrived) = hanging();
    let mut processor = Processor::start(dir.path(), &config(&receiver.url(), "", ""));
    assert_eq!(post(&processor, MESSAGES, TOKEN, r#"{"id":"o-1"}"#), 202);
    wait_for("the delivery", || arrived.load(Ordering::SeqCst) == 1);

    processor.signal("TERM");
    wait_for("it to be unready", || processor.get("/readyz").status == 503);
    assert_eq!(processor.get("/livez").status, 200, "it drains, and lives");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());

    processor.restart();
    wait_for("the delivery to be made again", || receiver.requests_for("o-1").len() == 1);
}

#[test]
fn a_second_signal_ends_it_now() {
    let dir = tempfile::tempdir().unwrap();
    let (receiver, arrived) = hanging();
    let mut processor = Processor::start(dir.path(), &config(&receiver.url(), "", ""));
    assert_eq!(post(&processor, MESSAGES, TOKEN, r#"{"id":"o-1"}"#), 202);
    wait_for("the delivery", || arrived.load(Ordering::SeqCst) == 1);
    processor.signal("TERM");
    wait_for("the first signal to be heard", || processor.get("/readyz").status == 503);
    processor.signal("TERM");
    // After a drain it would have ended with 0.
    assert_eq!(processor.wait(), Some(130), "{}", processor.log());
}

#[test]
fn the_log_is_json_with_the_fields_operators_search_by_and_nothing_secret() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(first(("503 Service Unavailable", "retry-after: 1\r\n")));
    let url = format!("{}/path-of-the-url", receiver.url());
    let header = dir.path().join("header");
    fs::write(&header, "Bearer secret-of-the-header\n").unwrap();
    let webhook = format!("headers = {{ authorization_file = \"{}\" }}", header.display());
    let mut processor = Processor::start(dir.path(), &config(&url, "", &webhook));
    let body = r#"{"id":"o-1","payload":{"card":"4111-1111"}}"#;
    assert_eq!(post(&processor, MESSAGES, TOKEN, body), 202);
    wait_for("the second attempt", || receiver.requests_for("o-1").len() == 2);
    assert_eq!(receiver.requests()[0].header("authorization"), Some("Bearer secret-of-the-header"));
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0));

    let log = processor.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let failed = lines.iter().find(|line| line["message"] == "attempt failed").unwrap();
    assert!(failed["correlation_id"].as_str().unwrap().starts_with("req_"), "{failed}");
    assert!(failed["endpoint_hash"].as_str().unwrap().contains("sha256:"), "{failed}");
    assert_eq!(failed["status_code"], 503, "{failed}");
    assert_eq!(failed["retry_after_header"], "1", "{failed}");
    assert_eq!((&failed["pipeline"], &failed["attempt"]), (&"orders".into(), &1.into()), "{failed}");
    for line in log.lines() {
        assert_eq!(line.matches("\"timestamp\":\"20").count(), 1, "one time, in ISO 8601: {line}");
    }
    for secret in ["4111-1111", "path-of-the-url", "secret-of-the-header", TOKEN] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
    assert!(!log.contains(&receiver.port.to_string()), "the address of the webhook is in the log: {log}");
}

#[test]
fn a_trace_goes_with_its_message_through_a_retry() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(first(UNAVAILABLE));
    let processor = Processor::start(dir.path(), &config(&receiver.url(), "", ""));
    let body = format!(r#"{{"id":"o-1","headers":{{"traceparent":"{TRACE}"}}}}"#);
    assert_eq!(post(&processor, MESSAGES, TOKEN, &body), 202);
    wait_for("the second attempt", || receiver.requests_for("o-1").len() == 2);
    for request in receiver.requests() {
        assert_eq!(request.header("traceparent"), Some(TRACE));
    }
}

/// 202 means that a message is on disk; an engine without a disk must not claim it.
#[test]
fn the_memory_engine_says_with_every_answer_that_a_restart_loses_it() {
    let receiver = Receiver::start(|_| OK);
    let dir = tempfile::tempdir().unwrap();
    let text = config(&receiver.url(), "", "").replace("dir = \"@DIR@\"", "kind = \"memory\"");
    let mut processor = Processor::start(dir.path(), &text);
    let one = processor.post(MESSAGES, "{\"id\":\"o-1\"}");
    assert_eq!((one.status, &one.json()["durable"]), (202, &Value::Bool(false)), "{}", one.body);
    let many = processor.post_as(MESSAGES, "application/x-ndjson", "{\"id\":\"o-2\"}\n");
    assert_eq!((many.status, &many.json()["durable"]), (202, &Value::Bool(false)), "{}", many.body);
    assert_eq!(processor.log().matches("a restart loses every message").count(), 1, "{}", processor.log());
    processor.kill();
    let mut processor = Processor::start(dir.path(), &config(&receiver.url(), "", ""));
    let one = processor.post(MESSAGES, "{\"id\":\"o-1\"}");
    assert_eq!((one.status, one.json().get("durable")), (202, None), "{}", one.body);
    processor.kill();
}
