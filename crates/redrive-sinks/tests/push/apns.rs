//! APNs: requests, and the class of every answer.

use redrive::internal::subscriptions::{Purge, SubscriptionState, Subscriptions};
use redrive::{Class, Message, Time};
use redrive_sinks::push::Verdict;
use redrive_sinks::push::failing::PushError;
use redrive_sinks::{ApnsAuth, ApnsOptions, ApnsSink};
use serde_json::json;

use crate::server::{Authority, PushServer, Reply, Seen, deliver, key_file};

pub fn sink(server: &PushServer, change: impl FnOnce(&mut ApnsOptions)) -> ApnsSink {
    let key_file = key_file(&server.authority.dir, "key.p8");
    let auth = ApnsAuth::Token { key_file, key_id: "KEY4567890".into(), team_id: "TEAM567890".into() };
    let mut options = ApnsOptions::new(auth);
    options.url = server.url();
    options.ca_file = Some(server.authority.ca_file());
    options.topic = Some("com.example.app".into());
    change(&mut options);
    assert_eq!(options.check(), []);
    ApnsSink::build(options).unwrap()
}

/// The device token determines the server's answer.
pub fn push(id: &str, token: &str) -> Message {
    let payload = json!({"token": token, "payload": {"aps": {"alert": "hi"}}}).to_string();
    Message::builder(id).payload(payload).build().unwrap()
}

#[tokio::test]
async fn a_push_carries_what_apns_wants_to_know() {
    let server = PushServer::start(|_| Reply::of(200, "")).await;
    let sink = sink(&server, |_| {});
    let payload = json!({
        "token": "00ab12", "push_type": "background", "priority": 5, "collapse_id": "chat-7",
        "payload": {"aps": {"content-available": 1}}
    });
    let message =
        Message::builder("o-1").payload(payload.to_string()).deadline(Time::from_millis(1_999_999_999_999));
    deliver(&sink, message.build().unwrap()).await.unwrap();
    let [Seen { path, headers, body }] = &server.seen()[..] else { panic!("one request") };
    assert_eq!(path, "/3/device/00ab12");
    for (name, value) in [
        ("apns-topic", "com.example.app"),
        ("apns-push-type", "background"),
        ("apns-priority", "5"),
        ("apns-collapse-id", "chat-7"),
        ("apns-expiration", "1999999999"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert_eq!(headers["apns-id"].len(), 36);
    assert!(headers["authorization"].to_str().unwrap().starts_with("bearer ey"));
    assert_eq!(body, br#"{"aps":{"content-available":1}}"#);
}

#[tokio::test]
async fn with_a_certificate_the_handshake_says_who_we_are_and_no_token_is_sent() {
    let server = PushServer::of(Authority::demanding(), 100, |_| Reply::of(200, "")).await;
    let dir = server.authority.dir.path();
    let certified = sink(&server, |options| {
        options.auth = ApnsAuth::Certificate {
            certificate_file: dir.join("client.pem"),
            key_file: dir.join("client.key"),
        };
    });
    deliver(&certified, push("m", "00ab")).await.unwrap();
    assert!(!server.seen()[0].headers.contains_key("authorization"));
    let failure = deliver(&sink(&server, |_| {}), push("m", "00ab")).await.unwrap_err();
    assert_eq!(failure.class(), Class::Transient, "it concerns all messages, so it ends none: {failure}");
    assert_eq!(server.seen().len(), 1);
}

/// Every answer that Apple documents, with its row in CLASSIFICATION. Only endpoints with `gone` may be purged.
#[tokio::test]
async fn the_golden_corpus_of_answers() {
    let corpus: &[(u16, &str, Option<Class>, bool)] = &[
        (200, "", None, false),
        (400, "BadCollapseId", Some(Class::Permanent), false),
        (400, "BadDeviceToken", Some(Class::Permanent), true),
        (400, "BadExpirationDate", Some(Class::Permanent), false),
        (400, "BadMessageId", Some(Class::Permanent), false),
        (400, "BadPriority", Some(Class::Permanent), false),
        (400, "BadTopic", Some(Class::Permanent), false),
        (400, "DeviceTokenNotForTopic", Some(Class::Permanent), true),
        (400, "DuplicateHeaders", Some(Class::Permanent), false),
        (400, "IdleTimeout", Some(Class::Reconnect), false),
        (400, "InvalidPushType", Some(Class::Permanent), false),
        (400, "MissingDeviceToken", Some(Class::Permanent), false),
        (400, "MissingTopic", Some(Class::Permanent), false),
        (400, "PayloadEmpty", Some(Class::Permanent), false),
        (400, "TopicDisallowed", Some(Class::Permanent), false),
        (400, "SomethingNew", Some(Class::Permanent), false),
        (403, "BadCertificate", Some(Class::Credential), false),
        (403, "BadCertificateEnvironment", Some(Class::Credential), false),
        (403, "ExpiredProviderToken", Some(Class::Credential), false),
        (403, "Forbidden", Some(Class::Permanent), false),
        (403, "InvalidProviderToken", Some(Class::Credential), false),
        (403, "MissingProviderToken", Some(Class::Credential), false),
        (403, "UnrelatedKeyIdInToken", Some(Class::Reconnect), false),
        (403, "BadEnvironmentKeyIdInToken", Some(Class::Credential), false),
        (404, "BadPath", Some(Class::Permanent), false),
        (405, "MethodNotAllowed", Some(Class::Permanent), false),
        (410, "ExpiredToken", Some(Class::Gone), false),
        (410, "Unregistered", Some(Class::Gone), false),
        (413, "PayloadTooLarge", Some(Class::Permanent), false),
        (429, "TooManyProviderTokenUpdates", Some(Class::Credential), false),
        (429, "TooManyRequests", Some(Class::RateLimited), false),
        (500, "InternalServerError", Some(Class::Transient), false),
        (503, "ServiceUnavailable", Some(Class::Transient), false),
        (503, "Shutdown", Some(Class::Transient), false),
    ];
    let answers: Vec<(u16, &str)> = corpus.iter().map(|(status, reason, ..)| (*status, *reason)).collect();
    let server = PushServer::start(move |seen| {
        let token = seen.path.rsplit('/').next().unwrap();
        let (status, reason) = answers[usize::from_str_radix(token, 16).unwrap()];
        let body = if reason.is_empty() { String::new() } else { json!({"reason": reason}).to_string() };
        Reply::of(status, body)
    })
    .await;
    let table = Subscriptions::new("push", Purge::AtOnce);
    let sink = sink(&server, |options| options.subscriptions = table.clone());
    for (at, (status, reason, class, flagged)) in corpus.iter().enumerate() {
        let before = server.seen().len();
        let outcome = deliver(&sink, push(&format!("m-{at}"), &format!("{at:04x}"))).await;
        assert_eq!(outcome.as_ref().err().map(redrive::Failure::class), *class, "{status} {reason}");
        let requests = server.seen().len() - before;
        assert_eq!(requests, 1, "{status} {reason}");
        let Err(failure) = outcome else { continue };
        // A token that this process just signed cannot be too old, so no new one is signed, which Apple would count.
        if *reason == "ExpiredProviderToken" {
            assert!(failure.chain().contains("check the clock"), "{failure}");
            continue;
        }
        let error: &PushError = failure.downcast_ref().unwrap();
        assert_eq!(error.verdict == Some(Verdict::Flagged), *flagged, "{status} {reason}");
        assert!(failure.chain().contains(reason), "{failure}");
        assert!(!format!("{failure:?}").contains("/3/device"), "{failure:?}");
        assert!(failure.notes().iter().any(|(name, _)| *name == "endpoint_hash"), "{failure:?}");
    }
    // Every dead token is purged, and no other.
    let dead = corpus.iter().filter(|(_, _, class, _)| *class == Some(Class::Gone)).count();
    let purged = table.list(Some(SubscriptionState::Purged), None, 100);
    assert_eq!((purged.len(), dead), (2, 2));
    let said = purged.iter().filter_map(|listed| listed.record.as_ref()).map(|record| record.reason.as_str());
    assert!(said.into_iter().all(|said| said.contains("ExpiredToken") || said.contains("Unregistered")));
}

#[tokio::test]
async fn a_token_that_registered_again_since_apns_saw_it_gone_is_not_gone() {
    let body = r#"{"reason":"Unregistered","timestamp":1700000000000}"#;
    let server = PushServer::start(move |_| Reply::of(410, body)).await;
    let sink = sink(&server, |_| {});
    let class = async |registered: u64| {
        let payload = json!({"token": "00ab", "registered": registered, "payload": {"aps": {}}}).to_string();
        deliver(&sink, Message::builder("m").payload(payload).build().unwrap()).await.unwrap_err().class()
    };
    assert_eq!(class(1_600_000_000_000).await, Class::Gone);
    assert_eq!(class(1_800_000_000_000).await, Class::Permanent);
}

#[tokio::test]
async fn retry_after_is_followed_and_kept_as_it_was_written() {
    let server = PushServer::start(|_| Reply {
        headers: vec![("retry-after", "15".into())],
        ..Reply::of(503, r#"{"reason":"ServiceUnavailable"}"#)
    })
    .await;
    let failure = deliver(&sink(&server, |_| {}), push("m", "00ab")).await.unwrap_err();
    assert_eq!(failure.retry_after(), Some(std::time::Duration::from_secs(15)));
    assert!(failure.notes().contains(&("retry_after_header", "15".to_owned())));
}

#[tokio::test]
async fn what_apns_would_refuse_makes_no_request() {
    let server = PushServer::start(|_| Reply::of(200, "")).await;
    let sink = sink(&server, |_| {});
    for payload in ["{}", r#"{"token":"xyz","payload":{}}"#, "not json"] {
        let message = Message::builder("m").payload(payload).build().unwrap();
        assert_eq!(deliver(&sink, message).await.unwrap_err().class(), Class::Permanent);
    }
    assert!(server.seen().is_empty());
}

/// A reason is a single word, but so is a device token.
#[tokio::test]
async fn a_device_token_that_apns_gives_as_its_reason_is_not_repeated() {
    let server = PushServer::start(|seen| {
        let token = seen.path.rsplit('/').next().unwrap().to_uppercase();
        Reply::of(400, json!({"reason": token}).to_string())
    })
    .await;
    let sink = sink(&server, |_| {});
    for token in ["0f", "00ab", "8f14e45fceea167a5a36dedd4bea2543"] {
        let failure = deliver(&sink, push("m", token)).await.unwrap_err();
        let said = format!("{failure:?} {} {:?}", failure.chain(), failure.notes()).to_lowercase();
        assert!(said.contains("400 bad request: [token]"), "{said}");
        let hash = said.split("hmac-sha256:").nth(1).unwrap()[..16].to_owned();
        assert!(!said.replace(&hash, "").contains(&format!(" {token}")), "{said}");
    }
}
