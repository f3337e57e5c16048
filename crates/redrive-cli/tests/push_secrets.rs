//! Endpoints, device tokens and keys of the three push sinks are in no log, letter, export or `config show`. That holds
//! even if servers repeat a token in their answers.

#[path = "../../redrive-sinks/tests/push/server.rs"]
#[allow(dead_code, reason = "the tests of the sinks use the rest")]
mod server;
mod world;

use serde_json::{Value, json};
use server::{PlainServer, PushServer, Reply, Seen, key_file};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use world::process::{Processor, stdout};
use world::wait_for;

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
const RSA: &str = include_str!("../../redrive-sinks/tests/push/rsa_key_for_tests.pem");
const HASH_KEY: &str = "the key of the hashes";
const ACCESS_TOKEN: &str = "ya29.access-0f3a77";

/// Receivers as messages name them: one of each state, by the answer it gets.
struct Receivers {
    good: String,
    gone: String,
    refused: String,
}

/// A running processor, how a message names its receiver, and the texts that must not appear.
struct Setting {
    processor: Processor,
    subscription: Box<dyn Fn(&str) -> Value>,
    message: Box<dyn Fn(Value) -> Value>,
    receivers: Receivers,
    hidden: Vec<String>,
}

fn config(dir: &TempDir, sink: &str) -> String {
    std::fs::write(dir.path().join("hash.key"), HASH_KEY).unwrap();
    format!(
        "[engine]\ndir = \"@DIR@\"\n[server]\nlisten = \"@LISTEN@\"\n[[pipeline]]\nname = \"push\"\nlog_delivered = \"100%\"\n\
         profile = \"push\"\n{sink}purge = \"at_once\"\nhash_key_file = \"{}\"\n",
        dir.path().join("hash.key").display()
    )
}

/// A line from the middle of a key.
fn secret_of(pem: &str) -> String {
    pem.lines().nth(1).unwrap().to_owned()
}

fn webpush(runtime: &Runtime, dir: &TempDir) -> Setting {
    let server = runtime.block_on(PlainServer::start(|seen| {
        let status = match seen.path.as_str() {
            "/wp/good-0f3a77" => 201,
            "/wp/gone-0f3a77" => 410,
            _ => 400,
        };
        Reply::of(status, format!("the subscription http://127.0.0.1{} is not what it was", seen.path))
    }));
    let key = key_file(dir, "vapid.pem");
    let sink = format!(
        "[pipeline.sink.webpush]\nvapid_key_file = \"{}\"\nsubject = \"mailto:ops@example.com\"\n\
         allow_private_addresses = true\n",
        key.display()
    );
    let port = server.port;
    let hidden = ["0f3a77", "/wp/", P256DH, AUTH, HASH_KEY].map(str::to_owned).to_vec();
    let secret = secret_of(&std::fs::read_to_string(&key).unwrap());
    Setting {
        processor: Processor::start(dir.path(), &config(dir, &sink)),
        subscription: Box::new(move |path| {
            let endpoint = format!("http://127.0.0.1:{port}/wp/{path}-0f3a77");
            json!({"endpoint": endpoint, "keys": {"p256dh": P256DH, "auth": AUTH}})
        }),
        message: Box::new(|named| json!({"subscription": named, "payload": {"title": "hi"}})),
        receivers: Receivers { good: "good".into(), gone: "gone".into(), refused: "refused".into() },
        hidden: hidden.into_iter().chain([secret]).collect(),
    }
}

fn apns(runtime: &Runtime, dir: &TempDir) -> (Setting, PushServer) {
    let server = runtime.block_on(PushServer::start(|seen: &Seen| match seen.path.as_str() {
        "/3/device/900d0f3a77" => Reply::of(200, ""),
        "/3/device/dead0f3a77" => Reply::of(410, r#"{"reason":"Unregistered","timestamp":1700000000000}"#),
        path => Reply::of(400, json!({"reason": "BadDeviceToken", "token": path}).to_string()),
    }));
    let key = key_file(dir, "key.p8");
    let sink = format!(
        "[pipeline.sink.apns]\nkey_file = \"{}\"\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\nurl = {:?}\n\
         topic = \"com.example.app\"\nca_file = \"{}\"\n",
        key.display(),
        server.url(),
        server.authority.ca_file().display()
    );
    let secret = secret_of(&std::fs::read_to_string(&key).unwrap());
    let hidden = ["0f3a77", "/3/device", HASH_KEY, "bearer ey"].map(str::to_owned);
    let setting = Setting {
        processor: Processor::start(dir.path(), &config(dir, &sink)),
        subscription: Box::new(|token| json!({"token": token})),
        message: Box::new(|named| {
            let mut message = named.as_object().cloned().unwrap_or_default();
            if let Some(id) = named.as_str() {
                message.insert("subscription".into(), id.into());
            }
            message.insert("payload".into(), json!({"aps": {"alert": "hi"}}));
            message.into()
        }),
        receivers: Receivers {
            good: "900d0f3a77".into(),
            gone: "dead0f3a77".into(),
            refused: "bad00f3a77".into(),
        },
        hidden: hidden.into_iter().chain([secret]).collect(),
    };
    (setting, server)
}

fn fcm(runtime: &Runtime, dir: &TempDir) -> (Setting, PushServer) {
    let server = runtime.block_on(PushServer::start(|seen: &Seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let token = body.pointer("/message/token").and_then(Value::as_str).unwrap();
        let error = |status: u16, canonical: &str, code: &str| {
            let text = format!("The registration token {token} is not what it was");
            let details = json!([{"errorCode": code}]);
            let error = json!({"status": canonical, "message": text, "details": details});
            Reply::of(status, json!({"error": error}).to_string())
        };
        match token {
            "good-0f3a77:APA91" => Reply::of(200, "{}"),
            "gone-0f3a77:APA91" => error(404, "NOT_FOUND", "UNREGISTERED"),
            _ => error(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        }
    }));
    let answer = json!({"access_token": ACCESS_TOKEN, "expires_in": 3599}).to_string();
    let tokens = runtime.block_on(PlainServer::start(move |_| Reply::of(200, answer.clone())));
    let account = json!({
        "project_id": "demo-1", "client_email": "push@demo-1.example", "private_key": RSA,
        "token_uri": format!("http://127.0.0.1:{}/token", tokens.port),
    });
    let file = dir.path().join("account.json");
    std::fs::write(&file, account.to_string()).unwrap();
    let sink = format!(
        "[pipeline.sink.fcm]\nservice_account_file = \"{}\"\nurl = {:?}\nca_file = \"{}\"\n",
        file.display(),
        server.url(),
        server.authority.ca_file().display()
    );
    let hidden = ["0f3a77", ACCESS_TOKEN, HASH_KEY].map(str::to_owned);
    let setting = Setting {
        processor: Processor::start(dir.path(), &config(dir, &sink)),
        subscription: Box::new(|token| json!({"token": token})),
        message: Box::new(|named| {
            let mut message = named.as_object().cloned().unwrap_or_default();
            if let Some(id) = named.as_str() {
                message.insert("subscription".into(), id.into());
            }
            message.insert("notification".into(), json!({"title": "hi"}));
            message.into()
        }),
        receivers: Receivers {
            good: "good-0f3a77:APA91".into(),
            gone: "gone-0f3a77:APA91".into(),
            refused: "odd-0f3a77:APA91".into(),
        },
        hidden: hidden.into_iter().chain([secret_of(RSA)]).collect(),
    };
    (setting, server)
}

fn send(processor: &Processor, id: &str, payload: &Value) {
    let body = json!({"id": id, "payload": payload}).to_string();
    assert_eq!(processor.post("/v1/pipelines/push/messages", &body).status, 202, "{id}");
}

fn letters(processor: &Processor) -> usize {
    let listed = processor.get("/v1/pipelines/push/letters").json();
    listed["letters"].as_array().map_or(0, Vec::len)
}

/// The number of deliveries in the log.
fn delivered(processor: &Processor) -> usize {
    processor.log().matches("\"decision\":\"complete\"").count()
}

fn search(setting: &Setting, letter: &str) {
    let processor = &setting.processor;
    let cli = |args: &[&str]| {
        let output = processor.cli(args);
        stdout(&output) + &world::process::stderr(&output)
    };
    let seen = vec![
        ("log", processor.log()),
        ("config show", cli(&["config", "show"])),
        ("config show --origin", cli(&["config", "show", "--origin"])),
        ("status", cli(&["status", "push"])),
        ("subscriptions", cli(&["subscriptions", "list", "push"])),
        ("subscriptions export", cli(&["subscriptions", "export", "push"])),
        ("audit", cli(&["audit", "push", "--actions"])),
        ("letters", processor.get("/v1/pipelines/push/letters").body),
        ("dlq inspect", cli(&["dlq", "inspect", "push"])),
        ("dlq groups", cli(&["dlq", "groups", "push"])),
        ("metrics", processor.get("/metrics").body),
        ("dlq export", cli(&["dlq", "export", "push"])),
        ("dlq show", cli(&["dlq", "show", "push", letter, "--full"])),
        ("letter", processor.get(&format!("/v1/pipelines/push/letters/{letter}")).body),
    ];
    // Only the receiver is hidden.
    assert!(seen.iter().any(|(what, text)| *what == "letter" && text.contains("hi")), "{seen:?}");
    for (what, text) in seen {
        assert!(!text.is_empty(), "{what}");
        for hidden in &setting.hidden {
            assert!(!text.contains(hidden.as_str()), "{hidden} is in {what}:\n{text}");
        }
    }
}

fn nothing_shows(setting: &Setting) {
    let Setting { processor, subscription, message, receivers, .. } = setting;
    let Receivers { good, gone, refused } = receivers;
    for (name, receiver) in [("good", good), ("gone", gone), ("refused", refused)] {
        let id = format!("user-7/{name}");
        let body = json!({"id": id, "subscription": subscription(receiver)}).to_string();
        let answer = processor.post("/v1/pipelines/push/subscriptions", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        send(processor, &format!("stored-{name}"), &message(json!(id)));
    }
    wait_for("two letters", || letters(processor) == 2);
    wait_for("a delivery", || delivered(processor) == 1);
    // A purged endpoint is not called again, and the letter says why.
    send(processor, "stored-again", &message(json!("user-7/gone")));
    wait_for("three letters", || letters(processor) == 3);
    search(setting, "stored-gone");
    // The same with receivers named in the messages.
    for (name, receiver) in [("good", good), ("gone", gone), ("refused", refused)] {
        send(processor, &format!("direct-{name}"), &message(subscription(receiver)));
    }
    wait_for("five letters", || letters(processor) == 5);
    wait_for("two deliveries", || delivered(processor) == 2);
    search(setting, "direct-gone");
    search(setting, "direct-refused");
}

#[test]
fn no_endpoint_and_no_key_of_web_push_is_in_logs_letters_exports_or_the_configuration() {
    let (runtime, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    nothing_shows(&webpush(&runtime, &dir));
}

#[test]
fn no_device_token_and_no_key_of_apns_is_in_logs_letters_exports_or_the_configuration() {
    let (runtime, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let (setting, _server) = apns(&runtime, &dir);
    nothing_shows(&setting);
}

#[test]
fn no_device_token_and_no_key_of_fcm_is_in_logs_letters_exports_or_the_configuration() {
    let (runtime, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let (setting, _server) = fcm(&runtime, &dir);
    nothing_shows(&setting);
}
