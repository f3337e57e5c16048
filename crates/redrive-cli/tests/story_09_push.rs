//! Story 9 and its neighbours with the real binary: Web Push, APNs and FCM from a configuration file, against our own
//! servers.

#[path = "../../redrive-sinks/tests/push/server.rs"]
#[allow(dead_code, reason = "the tests of the sinks use the rest")]
mod server;
mod world;

use serde_json::{Value, json};
use server::{PlainServer, PushServer, Reply, key_file};
use tokio::runtime::Runtime;
use world::process::{Processor, stdout};
use world::wait_for;

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
const RSA: &str = include_str!("../../redrive-sinks/tests/push/rsa_key_for_tests.pem");

fn config(pipeline: &str, sink: &str) -> String {
    format!(
        "[engine]\ndir = \"@DIR@\"\n[server]\nlisten = \"@LISTEN@\"\n[[pipeline]]\nname = \"push\"\n{pipeline}\n{sink}\n"
    )
}

fn webpush(dir: &tempfile::TempDir, pipeline: &str) -> String {
    let key = key_file(dir, "vapid.pem");
    std::fs::write(dir.path().join("hash.key"), "the key of the hashes").unwrap();
    let sink = format!(
        "[pipeline.sink.webpush]\nvapid_key_file = \"{}\"\nsubject = \"mailto:ops@example.com\"\n\
         hash_key_file = \"{}\"\nallow_private_addresses = true\n",
        key.display(),
        dir.path().join("hash.key").display()
    );
    config(pipeline, &sink)
}

fn send(processor: &Processor, id: &str, payload: &Value) {
    let sent =
        processor.post("/v1/pipelines/push/messages", &json!({"id": id, "payload": payload}).to_string());
    assert_eq!(sent.status, 202, "{id}");
}

fn to_browser(port: u16, path: &str) -> Value {
    json!({
        "subscription": {
            "endpoint": format!("http://127.0.0.1:{port}{path}"), "keys": {"p256dh": P256DH, "auth": AUTH}
        },
        "payload": {"title": "hi"}
    })
}

/// The reasons of the dead letters, by message id.
fn reasons(processor: &Processor) -> Vec<(String, String)> {
    let listed = processor.get("/v1/pipelines/push/letters").json();
    let letters = listed["letters"].as_array().cloned().unwrap_or_default();
    let text = |letter: &Value, name: &str| letter[name].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<_> =
        letters.iter().map(|letter| (text(letter, "message"), text(letter, "reason"))).collect();
    found.sort();
    found
}

#[test]
fn a_gone_subscription_costs_one_request_and_no_log_or_letter_shows_where_it_was() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|seen| match seen.path.as_str() {
        "/wp/gone-0f3a77" => Reply::of(410, "push subscription /wp/gone-0f3a77 has unsubscribed"),
        "/wp/late-0f3a77" => Reply { headers: vec![("retry-after", "7200".into())], ..Reply::of(429, "") },
        "/wp/busy-0f3a77" => Reply { headers: vec![("retry-after", "60".into())], ..Reply::of(429, "") },
        _ => Reply::of(201, ""),
    }));
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &webpush(&dir, "profile = \"push\""));
    for name in ["good", "gone", "late", "busy"] {
        send(&processor, name, &to_browser(server.port, &format!("/wp/{name}-0f3a77")));
    }
    wait_for("four pushes", || server.seen().len() >= 4);
    wait_for("two letters", || reasons(&processor).len() == 2);
    let expected = [("gone", "gone"), ("late", "ttl_exceeded")];
    assert_eq!(reasons(&processor), expected.map(|(id, reason)| (id.to_owned(), reason.to_owned())));
    assert_eq!(
        server.seen().len(),
        4,
        "a dead subscription is asked once; a busy one is not asked again yet"
    );
    for seen in server.seen() {
        let ttl: u64 = seen.headers["ttl"].to_str().unwrap().parse().unwrap();
        assert!((3500..=3600).contains(&ttl), "the profile's hour: {ttl}");
    }

    // The rate-limited message waits as long as requested: the wait is neither capped nor added to the backoff.
    let busy = || processor.get("/v1/pipelines/push/messages/busy").json();
    wait_for("the retry", || busy().pointer("/history/0").is_some());
    let delay = busy().pointer("/history/0/delay_ms").and_then(Value::as_u64);
    assert_eq!(delay, Some(60_000), "{}", busy());

    let log = processor.log();
    let line = |id: u16| {
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut lines = lines.filter(|line| line["status_code"] == id && line["class"].is_string());
        lines.next().unwrap_or_else(|| panic!("no line for {id} in\n{log}"))
    };
    assert!(line(410)["endpoint_hash"].as_str().unwrap().starts_with("hmac-sha256:"));
    assert_eq!(line(410)["class"], "gone");
    assert!(line(429)["retry_after_header"].is_string(), "as it was written: {}", line(429));
    assert!(line(429)["correlation_id"].is_string());

    let shown = stdout(&processor.cli(&["config", "show"]));
    assert!(shown.contains("[pipeline.sink.webpush]") && shown.contains("vapid.pem"), "{shown}");
    let status = stdout(&processor.cli(&["status"]));
    assert!(status.contains("the subscription that each message carries (webpush)"), "{status}");
    let letters = processor.get("/v1/pipelines/push/letters").json().to_string();
    let pem = std::fs::read_to_string(dir.path().join("vapid.pem")).unwrap();
    let secret = pem.lines().nth(1).unwrap();
    for text in [&log, &shown, &status, &letters] {
        for hidden in ["0f3a77", "/wp/", secret, "the key of the hashes", AUTH] {
            assert!(!text.contains(hidden), "{hidden} is in\n{text}");
        }
    }
}

#[test]
fn a_key_that_every_endpoint_refuses_pauses_the_sink_once_and_burns_nothing() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PlainServer::start(|_| Reply::of(401, "")));
    let dir = tempfile::tempdir().unwrap();
    let processor =
        Processor::start(dir.path(), &webpush(&dir, "profile = \"push-critical\"\nconcurrency = 4"));
    for n in 0..100 {
        send(&processor, &format!("m-{n}"), &to_browser(server.port, &format!("/wp/{n}")));
    }
    let shown = || processor.get("/v1/pipelines/push").json();
    wait_for("the sink to be paused", || shown()["breaker"] != "closed");
    assert!(shown().to_string().contains("our key was refused"), "{}", shown());
    assert_eq!(reasons(&processor), []);
    let first = processor.get("/v1/pipelines/push/messages/m-0").json();
    assert_eq!(first["attempts"], 0, "{first}");
    let opened = processor.log().matches("breaker open").count();
    assert_eq!(opened, 1, "it is said once");
}

#[test]
fn one_endpoint_that_refuses_our_key_alone_ends_its_own_message_and_pauses_nobody() {
    let runtime = Runtime::new().unwrap();
    let server = runtime
        .block_on(PlainServer::start(|seen| Reply::of(if seen.path == "/wp/alone" { 403 } else { 201 }, "")));
    let dir = tempfile::tempdir().unwrap();
    let policy = "backoff = { fixed = \"50ms\" }\nretries = 5";
    let processor = Processor::start(dir.path(), &webpush(&dir, policy));
    send(&processor, "alone", &to_browser(server.port, "/wp/alone"));
    wait_for("the refusal", || !server.seen().is_empty());
    for n in 0..50 {
        send(&processor, &format!("m-{n}"), &to_browser(server.port, &format!("/wp/{n}")));
    }
    wait_for("its letter", || reasons(&processor).len() == 1);
    assert_eq!(reasons(&processor), [("alone".to_owned(), "permanent".to_owned())]);
    wait_for("the others", || server.seen().iter().filter(|seen| seen.path != "/wp/alone").count() == 50);
    assert_eq!(processor.get("/v1/pipelines/push").json()["breaker"], "closed");
}

#[test]
fn apns_is_delivered_to_from_a_configuration_file() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PushServer::start(|seen| match seen.path.as_str() {
        "/3/device/dead" => Reply::of(410, r#"{"reason":"Unregistered","timestamp":1700000000000}"#),
        _ => Reply::of(200, ""),
    }));
    let dir = &server.authority.dir;
    let sink = format!(
        "[pipeline.sink.apns]\nkey_file = {:?}\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\nurl = {:?}\n\
         topic = \"com.example.app\"\nca_file = {:?}\n",
        key_file(dir, "key.p8"),
        server.url(),
        server.authority.ca_file()
    );
    let processor = Processor::start(dir.path(), &config("profile = \"apns-worker\"\nttl = \"1h\"", &sink));
    for (id, token) in [("first", "00ab"), ("second", "dead")] {
        send(&processor, id, &json!({"token": token, "payload": {"aps": {"alert": "hi"}}}));
    }
    wait_for("a letter", || !reasons(&processor).is_empty());
    wait_for("both pushes", || server.seen().len() == 2);
    assert_eq!(reasons(&processor), [("second".to_owned(), "gone".to_owned())]);
    assert!(server.seen().iter().all(|seen| seen.headers.contains_key("apns-expiration")));
    assert!(!processor.log().contains("/3/device"), "{}", processor.log());
}

#[test]
fn a_provider_token_that_apns_refuses_pauses_the_sink_as_a_credential_and_burns_nothing() {
    let runtime = Runtime::new().unwrap();
    let refused = r#"{"reason":"InvalidProviderToken"}"#;
    let server = runtime.block_on(PushServer::start(move |_| Reply::of(403, refused)));
    let dir = &server.authority.dir;
    let sink = format!(
        "[pipeline.sink.apns]\nkey_file = {:?}\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\nurl = {:?}\n\
         topic = \"com.example.app\"\nca_file = {:?}\n",
        key_file(dir, "key.p8"),
        server.url(),
        server.authority.ca_file()
    );
    let processor =
        Processor::start(dir.path(), &config("profile = \"apns-worker\"\nconcurrency = 4", &sink));
    for n in 0..100 {
        send(&processor, &format!("m-{n}"), &json!({"token": format!("{n:04x}"), "payload": {"aps": {}}}));
    }
    let shown = || processor.get("/v1/pipelines/push").json();
    wait_for("the sink to be paused", || shown()["breaker"] != "closed");
    assert!(shown().to_string().contains("our key was refused"), "{}", shown());
    assert_eq!(reasons(&processor), []);
    let first = processor.get("/v1/pipelines/push/messages/m-0").json();
    assert_eq!(first["attempts"], 0, "{first}");
}

#[test]
fn fcm_is_delivered_to_from_a_configuration_file() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(PushServer::start(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        if body.pointer("/message/token") == Some(&json!("dead-token")) {
            let error = json!({"error": {"status": "NOT_FOUND", "details": [{"errorCode": "UNREGISTERED"}]}});
            return Reply::of(404, error.to_string());
        }
        Reply::of(200, "{}")
    }));
    let tokens = runtime
        .block_on(PlainServer::start(|_| Reply::of(200, r#"{"access_token":"at-1","expires_in":3599}"#)));
    let dir = &server.authority.dir;
    let account = json!({
        "project_id": "demo-1", "client_email": "push@demo-1.example", "private_key": RSA,
        "token_uri": format!("http://127.0.0.1:{}/token", tokens.port),
    });
    std::fs::write(dir.path().join("account.json"), account.to_string()).unwrap();
    let sink = format!(
        "[pipeline.sink.fcm]\nservice_account_file = {:?}\nrate = \"600k/m\"\nurl = {:?}\nca_file = {:?}\n",
        dir.path().join("account.json"),
        server.url(),
        server.authority.ca_file()
    );
    let processor = Processor::start(dir.path(), &config("profile = \"push-campaign\"", &sink));
    for (id, token) in [("first", "good-token"), ("second", "dead-token")] {
        send(&processor, id, &json!({"token": token, "notification": {"title": "hi"}}));
    }
    wait_for("a letter", || !reasons(&processor).is_empty());
    wait_for("both pushes", || server.seen().len() == 2);
    assert_eq!(reasons(&processor), [("second".to_owned(), "gone".to_owned())]);
    assert_eq!(tokens.seen().len(), 1);
}

#[test]
fn what_is_wrong_with_the_settings_is_said_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let check = |sink: &str| {
        let path = dir.path().join("redrive.toml");
        std::fs::write(&path, config("", sink).replace("@DIR@", "store").replace("@LISTEN@", "127.0.0.1:0"))
            .unwrap();
        let output =
            world::process::redrive(dir.path()).arg("--config").arg(&path).arg("check").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        world::process::stderr(&output) + &stdout(&output)
    };
    let said = check("[pipeline.sink.webpush]\n");
    assert!(said.contains("vapid_key_file") && said.contains("subject"), "{said}");
    let said =
        check("[pipeline.sink.apns]\nkey_file = \"/nowhere.p8\"\ncertificate_file = \"/nowhere.pem\"\n");
    assert!(said.contains("both `key_file` and `certificate_file` are set"), "{said}");
    let said = check("[pipeline.sink.fcm]\nservice_account_file = \"/nowhere.json\"\nrate = \"fast\"\n");
    assert!(said.contains("`fast` is not a rate") && said.contains("600k/m"), "{said}");
}
