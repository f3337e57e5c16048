//! Standard Webhooks signatures, verified by the reference libraries: before, during and after a rotation.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redrive::{Class, Message};
use redrive_sinks::WebhookOptions;
use redrive_sinks::webhook::signing::{Keyring, Received, VerifyingKey};
use redrive_sinks::webhook::{Signing, WebhookError};
use serde_json::json;

use crate::server::{Seen, Server, deliver, failure, sink, to};

const OLD: &str = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk";
const NEW: &str = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3";
const PRIVATE: &str = "whsk_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
const BODY: &str = r#"{"amount":100,"café":"."}"#;

fn public() -> String {
    Keyring::parse(PRIVATE).unwrap().public().next().unwrap()
}

/// The request for a message with a dot in its id, signed with the secrets of this file.
async fn signed_by(secrets: &str) -> Seen {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secrets");
    std::fs::write(&path, secrets).unwrap();
    let server = Server::saying(200, &[], "").await;
    let signing = Signing { secret_file: Some(path), ..Signing::default() };
    let sink = sink(WebhookOptions { signing, ..to(server.url("/")) });
    deliver(&sink, Message::builder("shop.orders/3/17").payload(BODY)).await.unwrap();
    server.seen().remove(0)
}

fn verify(seen: &Seen, key: &str) -> bool {
    let received = Received {
        id: seen.header("webhook-id"),
        timestamp: seen.header("webhook-timestamp"),
        signature: seen.header("webhook-signature"),
        body: &seen.body,
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = redrive::Time::from_millis(now.as_millis() as u64);
    received.verify(&VerifyingKey::parse(key).unwrap(), Some(now)).is_ok()
}

/// The libraries fetched by `scripts/webhook-libs.sh`; `None` if it has not been run here.
fn libraries() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let libs = root.join("target/webhook-libs").canonicalize().ok()?;
    let done = std::fs::read_dir(&libs).ok()?.flatten();
    let mut done = done.filter(|entry| entry.file_name().to_string_lossy().starts_with("done-"));
    done.next().map(|_| libs)
}

/// The result of each language's library.
fn verified_elsewhere(libs: &Path, seen: &Seen, key: &str) -> Vec<(&'static str, bool)> {
    let verifiers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verifiers");
    let mut python = Command::new("python3");
    python.arg(verifiers.join("verify.py")).env("PYTHONPATH", libs.join("python"));
    let mut node = Command::new("node");
    node.arg(verifiers.join("verify.mjs")).env("REDRIVE_NODE_MODULES", libs.join("node/node_modules"));
    let go = Command::new(libs.join("verify-go"));
    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: serde_json::Map<_, _> =
        headers.into_iter().map(|name| (name.to_owned(), seen.header(name).into())).collect();
    let request =
        json!({"key": key, "headers": headers, "body": String::from_utf8_lossy(&seen.body)}).to_string();
    [("python", python), ("node", node), ("go", go)]
        .into_iter()
        .map(|(name, mut command)| {
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
            let said = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
            assert!(said == "ok" || said.starts_with("no:"), "{name} said {said:?}");
            (name, said == "ok")
        })
        .collect()
}

#[tokio::test]
async fn the_reference_libraries_verify_both_algorithms_before_during_and_after_a_rotation() {
    let Some(libs) = libraries() else {
        eprintln!("skipped: scripts/webhook-libs.sh fetches the libraries");
        return;
    };
    let before = signed_by(OLD).await;
    let during = signed_by(&format!("{NEW}\n{PRIVATE}\n{OLD} until 2999-01-01T00:00:00Z\n")).await;
    let after = signed_by(&format!("{NEW}\n{PRIVATE}\n{OLD} until 2020-01-01T00:00:00Z\n")).await;
    let all = |expected: bool| vec![("python", expected), ("node", expected), ("go", expected)];
    for (when, seen, old, new, asymmetric) in [
        ("before", &before, true, false, false),
        ("during", &during, true, true, true),
        ("after", &after, false, true, true),
    ] {
        assert_eq!(verified_elsewhere(&libs, seen, OLD), all(old), "{when}, old secret");
        assert_eq!(verified_elsewhere(&libs, seen, NEW), all(new), "{when}, new secret");
        assert_eq!(verified_elsewhere(&libs, seen, &public()), all(asymmetric), "{when}, public key");
    }
    let mut forged = during.clone();
    forged.body = BODY.replace("100", "999").into();
    assert_eq!(verified_elsewhere(&libs, &forged, NEW), all(false));
    assert_eq!(verified_elsewhere(&libs, &forged, &public()), all(false));
}

#[tokio::test]
async fn each_attempt_is_signed_and_no_id_brings_a_dot_into_what_is_signed() {
    let seen = signed_by(&format!("{NEW}\n{PRIVATE}\n")).await;
    assert_eq!(seen.header("webhook-id"), "shop%2Eorders/3/17");
    assert!(verify(&seen, NEW) && verify(&seen, &public()) && !verify(&seen, OLD));
}

#[tokio::test]
async fn the_secret_that_a_message_brings_signs_and_is_not_sent_along() {
    let server = Server::saying(200, &[], "").await;
    let signing = Signing { endpoint_secret_header: Some("x-secret".to_owned()), ..Signing::default() };
    let sink = sink(WebhookOptions { signing, ..to(server.url("/")) });
    deliver(&sink, Message::builder("a").payload("{}").header("X-Secret", OLD)).await.unwrap();
    let seen = server.seen().remove(0);
    assert!(verify(&seen, OLD));
    assert!(seen.headers.values().all(|value| !value.to_str().unwrap().contains("whsec_")), "{seen:?}");

    let failed = failure(&sink, Message::builder("b").payload("{}")).await;
    assert_eq!(failed.class(), Class::Permanent);
    assert!(matches!(failed.downcast_ref(), Some(WebhookError::Signing(_))), "{failed}");
    assert_eq!(server.seen().len(), 1, "an unsigned request is never sent");
}

/// A command that has the secret of one endpoint, none for another, and fails for a third.
#[tokio::test]
async fn a_command_says_the_secret_of_each_endpoint_and_its_failure_is_not_the_receivers() {
    let server = Server::saying(200, &[], "").await;
    let script = format!("case \"$0\" in */known) echo {NEW};; */broken) exit 3;; esac");
    let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let signing = Signing { endpoint_secret_command: command, ..Signing::default() };
    let options = WebhookOptions {
        signing,
        allow_private_addresses: true,
        ..WebhookOptions::per_message(redrive_core::Pick::Json("/url".into()))
    };
    let sink = sink(options);
    let at = |path: &str| Message::builder("a").payload(json!({"url": server.url(path)}).to_string());
    deliver(&sink, at("/known")).await.unwrap();
    assert!(verify(&server.seen()[0], NEW));

    let none = failure(&sink, at("/none")).await;
    assert_eq!((none.class(), none.is_before_receiver()), (Class::Permanent, false), "{none}");
    let failed = failure(&sink, at("/broken")).await;
    assert_eq!((failed.class(), failed.is_before_receiver()), (Class::Transient, true), "{failed}");
    assert!(failed.chain().ends_with("failed: it ended with exit status: 3"), "{failed}");
    assert_eq!(server.seen().len(), 1, "an unsigned request is never sent");
}
