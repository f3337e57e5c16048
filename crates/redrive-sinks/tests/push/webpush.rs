//! Web Push: an independent receiver decrypts requests; and the class of every answer.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime};

use redrive::internal::subscriptions::file::SubscriptionFile;
use redrive::internal::subscriptions::{Purge, Subscriptions};
use redrive::{Class, Message, Sink as _, Time};
use redrive_sinks::push::Verdict;
use redrive_sinks::push::failing::PushError;
use redrive_sinks::push::keys::Es256;
use redrive_sinks::{Secret, WebPushOptions, WebPushSink};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{PlainServer, Reply, deliver, key_file};

/// The receiver of RFC 8291, section 5.
const PUBLIC: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const PRIVATE: &str = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

fn sink(dir: &TempDir, change: impl FnOnce(&mut WebPushOptions)) -> WebPushSink {
    let mut options = WebPushOptions::new(key_file(dir, "vapid.pem"), "mailto:ops@example.com");
    options.allow_private_addresses = true;
    change(&mut options);
    assert_eq!(options.check(), []);
    WebPushSink::build(options).unwrap()
}

fn subscription(port: u16, path: &str) -> Value {
    json!({"endpoint": format!("http://127.0.0.1:{port}{path}"), "keys": {"p256dh": PUBLIC, "auth": AUTH}})
}

fn push(port: u16, path: &str) -> Message {
    let payload = json!({"subscription": subscription(port, path), "payload": "hello"});
    Message::builder("m").payload(payload.to_string()).build().unwrap()
}

/// The Python interpreter with the package http_ece, installed by `scripts/push-receiver.sh`.
fn python() -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/push-receiver/bin/python"));
    path.exists().then_some(path)
}

const DECRYPT: &str = "
import sys, base64, http_ece
from cryptography.hazmat.primitives.asymmetric import ec
def b(s): return base64.urlsafe_b64decode(s + '=' * (-len(s) % 4))
key = ec.derive_private_key(int.from_bytes(b(sys.argv[1]), 'big'), ec.SECP256R1())
sys.stdout.buffer.write(http_ece.decrypt(sys.stdin.buffer.read(), private_key=key, auth_secret=b(sys.argv[2])))
";

#[tokio::test]
async fn a_receiver_of_another_make_decrypts_the_push() {
    let Some(python) = python() else {
        eprintln!("skipped: run scripts/push-receiver.sh install");
        return;
    };
    let (dir, server) = (tempfile::tempdir().unwrap(), PlainServer::start(|_| Reply::of(201, "")).await);
    let sink = sink(&dir, |_| {});
    let text = format!("Grüße {}", "x".repeat(3900));
    for (payload, expected) in
        [(json!(text), text.clone()), (json!({"title": "hi"}), r#"{"title":"hi"}"#.into())]
    {
        let payload = json!({"subscription": subscription(server.port, "/p"), "payload": payload});
        deliver(&sink, Message::builder("m").payload(payload.to_string()).build().unwrap()).await.unwrap();
        let body = server.seen().pop().unwrap().body;
        assert!(body.len() <= 4096);
        let mut child = Command::new(&python)
            .args(["-c", DECRYPT, PRIVATE, AUTH])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&body).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_push_carries_ttl_urgency_topic_and_who_we_are() {
    let (dir, server) = (tempfile::tempdir().unwrap(), PlainServer::start(|_| Reply::of(201, "")).await);
    let sink = sink(&dir, |_| {});
    let payload = json!({
        "subscription": subscription(server.port, "/p/secret-path"), "payload": "hi",
        "urgency": "high", "topic": "chat-7"
    });
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let message = || {
        let message = Message::builder("m").payload(payload.to_string());
        message.deadline(Time::from_millis(now + 100_000)).build().unwrap()
    };
    deliver(&sink, message()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    deliver(&sink, message()).await.unwrap();
    let seen = server.seen();
    let ttl = |at: usize| seen[at].headers["ttl"].to_str().unwrap().parse::<u64>().unwrap();
    assert!(ttl(0) <= 100 && ttl(1) < ttl(0), "each attempt sends what is left: {} {}", ttl(0), ttl(1));
    let headers = &seen[0].headers;
    assert_eq!(
        (&headers["urgency"], &headers["topic"]),
        (&"high".parse().unwrap(), &"chat-7".parse().unwrap())
    );
    assert_eq!(headers["content-encoding"], "aes128gcm");
    assert_eq!(seen[0].path, "/p/secret-path");
    let authorization = headers["authorization"].to_str().unwrap();
    let token = authorization.strip_prefix("vapid t=").unwrap().split(',').next().unwrap();
    let claims = redrive_sinks::push::keys::decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["aud"], format!("http://127.0.0.1:{}", server.port));
    assert_eq!(claims["sub"], "mailto:ops@example.com");
    assert!(claims["exp"].as_u64().unwrap() <= now / 1000 + 24 * 3600);
}

#[tokio::test]
async fn answers_mean_what_the_table_says_and_show_no_endpoint() {
    let status = Arc::new(AtomicU16::new(0));
    let asked = Arc::clone(&status);
    let server = PlainServer::start(move |seen| {
        let status = asked.load(Ordering::SeqCst);
        let body =
            if status == 400 { r#"{"reason":"VapidPkHashMismatch"}"#.into() } else { seen.path.clone() };
        Reply { headers: vec![("retry-after", "60".into())], ..Reply::of(status, body) }
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let sink = sink(&dir, |_| {});
    for (answer, class, verdict) in [
        (404, Class::Gone, Verdict::GONE),
        (410, Class::Gone, Verdict::GONE),
        (400, Class::Permanent, Verdict::Resubscribe),
        (413, Class::Permanent, Verdict::PERMANENT),
        (429, Class::RateLimited, Verdict::LIMITED),
        (503, Class::Transient, Verdict::TRANSIENT),
        (401, Class::Credential, Verdict::CREDENTIAL),
    ] {
        status.store(answer, Ordering::SeqCst);
        let failure = deliver(&sink, push(server.port, "/wp/very-secret-endpoint-1")).await.unwrap_err();
        assert_eq!(failure.class(), class, "{answer}");
        assert_eq!(failure.downcast_ref::<PushError>().unwrap().verdict, Some(verdict), "{answer}");
        assert_eq!(failure.retry_after(), Some(Duration::from_mins(1)), "{answer}");
        assert!(failure.notes().contains(&("retry_after_header", "60".to_owned())));
        assert!(!format!("{failure:?} {failure}").contains("secret-endpoint"), "{failure:?}");
    }
}

/// RFC 8030, 5.2: a push service may keep a push for less time than requested, and says so.
#[tokio::test]
async fn the_time_that_a_push_service_grants_is_noted_for_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let server = PlainServer::start(|seen| match seen.path.as_str() {
        "/short" => Reply { headers: vec![("ttl", "60".into())], ..Reply::of(201, "") },
        "/odd" => Reply { headers: vec![("ttl", "for ever".into())], ..Reply::of(201, "") },
        _ => Reply::of(201, ""),
    })
    .await;
    let sink = sink(&dir, |_| {});
    for (path, granted) in [("/short", Some("60")), ("/odd", None), ("/silent", None)] {
        let (message, mut notes) = (push(server.port, path), redrive::Notes::default());
        let call = redrive::Call { message, attempt: 1, replays: 0, pipeline: "push".into(), origin: None };
        sink.deliver_noted(call, &mut notes).await.unwrap();
        assert_eq!((notes.get("granted_ttl"), notes.get("status_code")), (granted, Some("201")), "{path}");
    }
}

#[tokio::test]
async fn one_endpoint_alone_that_refuses_our_key_is_that_endpoints_matter() {
    let server = PlainServer::start(|seen| Reply::of(if seen.path == "/bad" { 403 } else { 201 }, "")).await;
    let dir = tempfile::tempdir().unwrap();
    let sink = sink(&dir, |_| {});
    let class =
        async |path| deliver(&sink, push(server.port, path)).await.err().map(|failure| failure.class());
    assert_eq!(class("/bad").await, Some(Class::Credential), "at first it may be our key");
    assert_eq!(class("/good").await, None);
    assert_eq!(class("/bad").await, Some(Class::Permanent), "the others are served with the same key");
}

#[tokio::test]
async fn a_subscription_is_served_with_the_key_it_was_made_with() {
    let (dir, server) = (tempfile::tempdir().unwrap(), PlainServer::start(|_| Reply::of(201, "")).await);
    let old = key_file(&dir, "old.pem");
    let public = |path: &PathBuf| {
        let key = Es256::read(&std::fs::read_to_string(path).unwrap()).unwrap();
        redrive_sinks::push::keys::encode(key.public())
    };
    let old_public = public(&old);
    let sink = sink(&dir, |options| options.vapid_key_files.push(old));
    let mut payload = json!({"subscription": subscription(server.port, "/p"), "vapid_key": old_public});
    deliver(&sink, Message::builder("m").payload(payload.to_string()).build().unwrap()).await.unwrap();
    deliver(&sink, push(server.port, "/p")).await.unwrap();
    let signed_by = |at: usize| {
        let value = server.seen()[at].headers["authorization"].to_str().unwrap().to_owned();
        value.split("k=").nth(1).unwrap().to_owned()
    };
    assert_eq!(signed_by(0), old_public);
    assert_eq!(signed_by(1), public(&dir.path().join("vapid.pem")));
    payload["vapid_key"] = json!("BAunknown");
    let unknown = Message::builder("m").payload(payload.to_string()).build().unwrap();
    assert_eq!(deliver(&sink, unknown).await.unwrap_err().class(), Class::Permanent);
    assert_eq!(server.seen().len(), 2, "nothing is sent with a key that would be refused");
}

/// Once, a browser that registered again, as pages do at each visit, was assigned the new key, and its pushes were
/// refused.
#[tokio::test]
async fn registering_again_keeps_the_key_unless_the_subscription_is_another_or_says_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (key_file(&dir, "old.pem"), key_file(&dir, "new.pem"));
    let open = |files: Vec<PathBuf>| {
        let table = Subscriptions::new("push", Purge::Verify);
        let options = table.clone();
        let sink = sink(&dir, |it| {
            it.hash_key = Some(Secret::from("the key of the hashes"));
            (it.vapid_key_files, it.subscriptions) = (files, options);
        });
        table.open(Box::new(SubscriptionFile::open(dir.path()).unwrap())).unwrap();
        (table, sink)
    };
    let key = async |table: &Subscriptions, id: &str, given: &Value| {
        let listed = table.register(id, given, Time::from_millis(5)).await;
        listed.map(|_| table.stored(id).unwrap().key.clone().unwrap()).map_err(|error| error.to_string())
    };
    let given = subscription(1, "/p");
    let first = {
        let (table, _sink) = open(vec![old.clone()]);
        key(&table, "user-1", &given).await.unwrap()
    };
    let (table, kept) = open(vec![new.clone(), old.clone()]);
    assert_eq!(key(&table, "user-1", &given).await.unwrap(), first);
    let mut padded = given.clone();
    padded["keys"]["auth"] = json!(format!("{AUTH}=="));
    padded["expirationTime"] = Value::Null;
    assert_eq!(key(&table, "user-2", &padded).await.unwrap(), first, "the same browser under another id");
    let mut another = given.clone();
    another["keys"]["auth"] = json!("AAAAMqHH6r4Tts7J_aSIgg");
    let second = key(&table, "user-1", &another).await.unwrap();
    assert_ne!(second, first, "subscribed anew");
    let mut named = given.clone();
    named["vapid_key"] = json!(second);
    assert_eq!(key(&table, "user-2", &named).await.unwrap(), second, "it says so");
    drop((table, kept));
    let (table, _sink) = open(vec![old]);
    let refused = key(&table, "user-2", &given).await.unwrap_err();
    assert!(refused.contains("a VAPID key that is not configured here"), "{refused}");
}

#[tokio::test]
async fn a_member_that_is_nearly_one_of_a_subscription_makes_no_request() {
    let (dir, server) = (tempfile::tempdir().unwrap(), PlainServer::start(|_| Reply::of(201, "")).await);
    let sink = sink(&dir, |_| {});
    let mut given = subscription(server.port, "/p");
    given["vapidKey"] = json!("BOther");
    let payload = json!({"subscription": given, "payload": "hi"}).to_string();
    let failure = deliver(&sink, Message::builder("m").payload(payload).build().unwrap()).await.unwrap_err();
    assert_eq!(failure.class(), Class::Permanent);
    assert!(failure.chain().contains("`vapidKey`, which means nothing here; did you mean `vapid_key`?"));
    assert!(failure.is_uncalled() && server.seen().is_empty());
}

/// Shorter tokens were once taken for words.
#[tokio::test]
async fn a_token_that_a_service_repeats_is_in_no_text_however_short_it_is() {
    let server = PlainServer::start(|seen| {
        let token = seen.path.rsplit('/').next().unwrap();
        // Without the public key, which may contain any two characters.
        let signed = seen.headers["authorization"].to_str().unwrap().split(", k=").next().unwrap().to_owned();
        let headers = vec![("retry-after", format!("never, {token}"))];
        Reply { headers, ..Reply::of(400, format!("no {token} ({signed}), {}%41", token.to_uppercase())) }
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let sink = sink(&dir, |_| {});
    for token in ["z7", "q0x9", "0f3a77", "dxY:APA91bGx7Q2kfJ0aMn-4", "user%2F7"] {
        let failure = deliver(&sink, push(server.port, &format!("/wp/{token}"))).await.unwrap_err();
        let said = format!("{} {:?}", failure.chain(), failure.notes()).to_lowercase();
        assert!(said.contains("[token]"), "{said}");
        assert!(!said.contains(&token.to_lowercase()) && !said.contains("eyj"), "{token}: {said}");
    }
}

#[tokio::test]
async fn what_no_push_service_would_take_makes_no_request() {
    let (dir, server) = (tempfile::tempdir().unwrap(), PlainServer::start(|_| Reply::of(201, "")).await);
    let sink = sink(&dir, |_| {});
    let mut bad_key = subscription(server.port, "/p");
    bad_key["keys"]["p256dh"] = json!("AAAA");
    for payload in [
        json!({"subscription": subscription(server.port, "/p"), "payload": "x".repeat(4000)}),
        json!({"subscription": bad_key}),
        json!({"payload": "hi"}),
    ] {
        let message = Message::builder("m").payload(payload.to_string()).build().unwrap();
        assert_eq!(deliver(&sink, message).await.unwrap_err().class(), Class::Permanent, "{payload}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_subscription_that_leads_into_a_private_network_is_blocked() {
    let (dir, server) = (tempfile::tempdir().unwrap(), PlainServer::start(|_| Reply::of(201, "")).await);
    let sink = sink(&dir, |options| options.allow_private_addresses = false);
    let mut inside = subscription(server.port, "/p");
    inside["endpoint"] = json!(format!("https://127.0.0.1:{}/p", server.port));
    let payload = json!({"subscription": inside}).to_string();
    let failure = deliver(&sink, Message::builder("m").payload(payload).build().unwrap()).await.unwrap_err();
    assert_eq!(failure.class(), Class::Permanent);
    assert!(server.seen().is_empty());
    assert!(sink.endpoint(&push(server.port, "/p")).is_none(), "plain http is for tests only");
}
