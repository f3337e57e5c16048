//! The four push profiles, with the real binary and in real time: a push service that is busy, then rate-limits, then
//! accepts; and a receiver that is gone.

#[path = "../../redrive-sinks/tests/push/server.rs"]
#[allow(dead_code, reason = "the tests of the sinks use the rest")]
mod server;
mod world;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use server::{PlainServer, PushServer, Reply, Seen, key_file};
use tokio::runtime::Runtime;
use world::process::Processor;
use world::wait_for;

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// Answers a path with 503 first, then with 429 and a Retry-After of a second, then with success. `gone` is gone.
#[derive(Clone, Default)]
struct Moody(Arc<Mutex<HashMap<String, u32>>>);

impl Moody {
    fn answer(&self, seen: &Seen) -> Reply {
        let mut calls = self.0.lock().unwrap();
        let call = calls.entry(seen.path.clone()).or_default();
        *call += 1;
        match *call {
            _ if seen.path.ends_with("dead") => Reply::of(410, r#"{"reason":"Unregistered"}"#),
            1 => Reply::of(503, r#"{"reason":"ServiceUnavailable"}"#),
            2 => Reply {
                headers: vec![("retry-after", "1".to_owned())],
                ..Reply::of(429, r#"{"reason":"TooManyRequests"}"#)
            },
            _ => Reply::of(200, ""),
        }
    }

    fn calls(&self, name: &str) -> u32 {
        let calls = self.0.lock().unwrap();
        calls.iter().find(|(path, _)| path.ends_with(name)).map_or(0, |(_, calls)| *calls)
    }
}

/// Sends two messages and follows each to its end.
fn follow(processor: &Processor, profile: &str, moody: &Moody, message: impl Fn(&str) -> Value) {
    for name in ["900d", "dead"] {
        // Not the name itself: an id that contains its receiver's token is hidden in the log.
        let body = json!({"id": format!("m-of-{}", &name[..1]), "payload": message(name)}).to_string();
        assert_eq!(processor.post("/v1/pipelines/push/messages", &body).status, 202, "{profile}");
    }
    let shown = |id: &str| processor.get(&format!("/v1/pipelines/push/messages/{id}")).json();
    wait_for("the push to be taken", || moody.calls("900d") == 3);
    let delivered = || processor.log().contains("\"decision\":\"complete\"");
    wait_for("its end", delivered);
    assert_eq!(moody.calls("900d"), 3, "{profile}: busy, limited, taken");
    wait_for("the letter of the other", || shown("m-of-d")["state"] == "dead");
    assert_eq!(moody.calls("dead"), 1, "{profile}: who is gone is asked once");
    let letter = processor.get("/v1/pipelines/push/letters/m-of-d").json();
    assert_eq!(letter["reason"], "gone", "{profile}: {letter}");
    let log = processor.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let waits: Vec<Value> = lines
        .filter(|line| line["message_id"] == "m-of-9" && line["delay_ms"].is_u64())
        .map(|line| json!([line["status_code"], line["class"], line["retry_after_header"]]))
        .collect();
    let expected = json!([[503, "transient", null], [429, "rate_limited", "1"]]);
    assert_eq!(json!(waits), expected, "{profile}:\n{log}");
}

fn config(profile: &str, sink: &str) -> String {
    format!(
        "[engine]\ndir = \"@DIR@\"\n[server]\nlisten = \"@LISTEN@\"\n[[pipeline]]\nname = \"push\"\nprofile = \"{profile}\"\n\
         log_delivered = \"100%\"\n{sink}"
    )
}

#[test]
fn the_profiles_of_web_push_deliver_in_real_time_through_503_and_429() {
    let runtime = Runtime::new().unwrap();
    std::thread::scope(|scope| {
        for profile in ["push", "push-critical", "push-campaign"] {
            let runtime = &runtime;
            scope.spawn(move || {
                let moody = Moody::default();
                let answers = moody.clone();
                let server = runtime.block_on(PlainServer::start(move |seen| answers.answer(seen)));
                let dir = tempfile::tempdir().unwrap();
                let sink = format!(
                    "[pipeline.sink.webpush]\nvapid_key_file = {:?}\nsubject = \"mailto:ops@example.com\"\n\
                     allow_private_addresses = true\n",
                    key_file(&dir, "vapid.pem")
                );
                let processor = Processor::start(dir.path(), &config(profile, &sink));
                follow(&processor, profile, &moody, |name| {
                    let endpoint = format!("http://127.0.0.1:{}/wp/{name}", server.port);
                    let keys = json!({"p256dh": P256DH, "auth": AUTH});
                    json!({"subscription": {"endpoint": endpoint, "keys": keys}, "payload": "hi"})
                });
            });
        }
    });
}

#[test]
fn the_profile_of_apns_workers_delivers_in_real_time_through_503_and_429() {
    let runtime = Runtime::new().unwrap();
    let moody = Moody::default();
    let answers = moody.clone();
    let server = runtime.block_on(PushServer::start(move |seen| answers.answer(seen)));
    let dir = tempfile::tempdir().unwrap();
    let sink = format!(
        "[pipeline.sink.apns]\nkey_file = {:?}\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\nurl = {:?}\n\
         topic = \"com.example.app\"\nca_file = {:?}\n",
        key_file(&dir, "key.p8"),
        server.url(),
        server.authority.ca_file()
    );
    let processor = Processor::start(dir.path(), &config("apns-worker", &sink));
    let message = |name: &str| json!({"token": name, "payload": {"aps": {}}});
    follow(&processor, "apns-worker", &moody, message);

    // An id that equals its receiver's token is not logged, neither for deliveries nor for failures.
    for name in ["900d", "dead"] {
        let body = json!({"id": name, "payload": message(name)}).to_string();
        assert_eq!(processor.post("/v1/pipelines/push/messages", &body).status, 202);
    }
    wait_for("their ends", || processor.log().matches(r#""message_id":"[redacted]""#).count() == 2);
    assert!(!processor.log().contains("900d"), "{}", processor.log());
}

/// S1-44: dispatch pauses, and the alert contains the vendor's status page.
#[test]
fn the_alert_of_an_open_breaker_names_the_status_page_of_the_vendor() {
    let runtime = Runtime::new().unwrap();
    let server =
        runtime.block_on(PushServer::start(|_| Reply::of(503, r#"{"reason":"ServiceUnavailable"}"#)));
    let hook = runtime.block_on(PlainServer::start(|_| Reply::of(200, "")));
    let dir = tempfile::tempdir().unwrap();
    let sink = format!(
        "[pipeline.sink.apns]\nkey_file = {:?}\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\nurl = {:?}\n\
         topic = \"com.example.app\"\nca_file = {:?}\n\
         [[alert]]\non = [\"breaker_open\"]\nwebhook = \"http://127.0.0.1:{}/alert\"\n",
        key_file(&dir, "key.p8"),
        server.url(),
        server.authority.ca_file(),
        hook.port
    );
    let processor = Processor::start(dir.path(), &config("apns-worker", &sink));
    for number in 0..60 {
        let payload = json!({"token": format!("{number:04x}"), "payload": {"aps": {}}});
        let body = json!({"id": format!("m-{number}"), "payload": payload}).to_string();
        assert_eq!(processor.post("/v1/pipelines/push/messages", &body).status, 202);
    }
    wait_for("the alert", || !hook.seen().is_empty());
    let told: Value = serde_json::from_slice(&hook.seen()[0].body).unwrap();
    let page = "https://developer.apple.com/system-status/";
    assert_eq!(told["status_pages"], json!([{"service": "APNs", "url": page}]), "{told}");
    assert!(told["text"].as_str().unwrap().contains(page), "{told}");
    let attention = || processor.get("/v1/pipelines/push").json()["attention"].clone();
    wait_for("the breaker in the API", || attention()[0]["subject"] == "breaker");
    assert_eq!(attention()[0]["links"], json!([page]), "{}", attention());
    let status = processor.cli(&["status", "push"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains(page), "{status}");
}
