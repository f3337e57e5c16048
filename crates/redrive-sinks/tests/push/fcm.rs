//! FCM: the access token, requests, and the class of every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redrive::internal::subscriptions::{Purge, SubscriptionState, Subscriptions};
use redrive::{Class, Failure, Message};
use redrive_sinks::push::Verdict;
use redrive_sinks::push::failing::PushError;
use redrive_sinks::{FcmOptions, FcmSink};
use serde_json::{Value, json};

use crate::server::{PlainServer, PushServer, Reply, deliver};

const KEY: &str = include_str!("rsa_key_for_tests.pem");

fn sink(server: &PushServer, tokens: &PlainServer) -> FcmSink {
    sink_with(server, tokens, |_| {})
}

pub fn sink_with(server: &PushServer, tokens: &PlainServer, change: impl FnOnce(&mut FcmOptions)) -> FcmSink {
    let account = json!({
        "type": "service_account", "project_id": "demo-1", "client_email": "push@demo-1.example",
        "private_key": KEY, "token_uri": format!("http://127.0.0.1:{}/token", tokens.port),
    });
    let path = server.authority.dir.path().join("account.json");
    std::fs::write(&path, account.to_string()).unwrap();
    let mut options = FcmOptions::new(path);
    options.url = server.url();
    options.ca_file = Some(server.authority.ca_file());
    change(&mut options);
    assert_eq!(options.check(), []);
    FcmSink::build(options).unwrap()
}

/// A token server that issues numbered tokens.
async fn tokens() -> PlainServer {
    let given = AtomicU32::new(0);
    PlainServer::start(move |_| {
        let token = format!("at-{}", given.fetch_add(1, Ordering::SeqCst));
        Reply::of(200, json!({"access_token": token, "expires_in": 3599}).to_string())
    })
    .await
}

pub fn push(id: &str, token: &str) -> Message {
    let payload = json!({"token": token, "notification": {"title": "hi"}}).to_string();
    Message::builder(id).payload(payload).build().unwrap()
}

pub fn error(status: u16, canonical: &str, code: &str) -> Reply {
    let mut error = json!({"code": status, "status": canonical, "message": "text"});
    if !code.is_empty() {
        error["details"] = json!([{"errorCode": code}]);
    }
    Reply::of(status, json!({"error": error}).to_string())
}

#[tokio::test]
async fn many_pushes_at_once_share_one_access_token() {
    let (server, tokens) = (PushServer::start(|_| Reply::of(200, "{}")).await, tokens().await);
    let sink = Arc::new(sink(&server, &tokens));
    let pushes: Vec<_> = (0..50)
        .map(|n| {
            let sink = Arc::clone(&sink);
            tokio::spawn(async move { deliver(&*sink, push(&format!("m-{n}"), "tok")).await })
        })
        .collect();
    for push in pushes {
        push.await.unwrap().unwrap();
    }
    assert_eq!((tokens.seen().len(), server.seen().len()), (1, 50));
    let seen = &server.seen()[0];
    assert_eq!(seen.path, "/v1/projects/demo-1/messages:send");
    assert_eq!(seen.headers["authorization"], "Bearer at-0");
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!(body, json!({"message": {"token": "tok", "notification": {"title": "hi"}}}));
    let form = String::from_utf8(tokens.seen()[0].body.clone()).unwrap();
    assert!(
        form.starts_with("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=ey")
    );
}

/// Every answer of the class table; each costs one request of the quota, in addition to a refused access token.
#[tokio::test]
async fn the_golden_corpus_of_answers() {
    let corpus = [
        (404, "NOT_FOUND", "UNREGISTERED", Class::Gone, false),
        (404, "NOT_FOUND", "", Class::Credential, false),
        (400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", Class::Permanent, true),
        (400, "INVALID_ARGUMENT", "", Class::Permanent, true),
        (400, "FAILED_PRECONDITION", "", Class::Permanent, false),
        (403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH", Class::Permanent, true),
        (403, "PERMISSION_DENIED", "", Class::Credential, false),
        (401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR", Class::Credential, false),
        (401, "UNAUTHENTICATED", "", Class::Credential, false),
        (429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", Class::RateLimited, false),
        (429, "RESOURCE_EXHAUSTED", "", Class::RateLimited, false),
        (500, "INTERNAL", "INTERNAL", Class::Transient, false),
        (503, "UNAVAILABLE", "UNAVAILABLE", Class::Transient, false),
        (502, "", "", Class::Transient, false),
    ];
    let server = PushServer::start(move |seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let at: usize = body.pointer("/message/token").unwrap().as_str().unwrap()[4..].parse().unwrap();
        let (status, canonical, code, ..) = corpus[at];
        error(status, canonical, code)
    })
    .await;
    let (tokens, mut spent) = (tokens().await, 0);
    let table = Subscriptions::new("push", Purge::AtOnce);
    let sink = sink_with(&server, &tokens, |options| options.subscriptions = table.clone());
    for (at, (status, canonical, code, class, flagged)) in corpus.into_iter().enumerate() {
        let failure = deliver(&sink, push(&format!("m-{at}"), &format!("tok-{at}"))).await.unwrap_err();
        assert_eq!(failure.class(), class, "{status} {canonical} {code}: {failure}");
        let verdict = failure.downcast_ref::<PushError>().unwrap().verdict;
        assert_eq!(verdict == Some(Verdict::Flagged), flagged, "{status} {canonical} {code}");
        // A plain 401 is retried once with a new access token.
        spent += if status == 401 && code.is_empty() { 2 } else { 1 };
        assert_eq!(server.seen().len(), spent, "{status} {canonical} {code}");
        assert!(!format!("{failure:?}").contains("tok-"), "{failure:?}");
        if class == Class::RateLimited {
            assert_eq!(failure.retry_after(), Some(Duration::from_mins(1)), "the quota is by the minute");
        }
    }
    let purged = table.list(Some(SubscriptionState::Purged), None, 100);
    assert_eq!(purged.len(), 1, "the one that is not registered, and nobody else");
    assert!(purged[0].record.as_ref().unwrap().reason.contains("UNREGISTERED"));
}

#[tokio::test]
async fn an_access_token_that_ends_on_its_way_is_renewed_and_the_push_delivered() {
    let server = PushServer::start(|seen| {
        let is_old = seen.headers["authorization"] == "Bearer at-0";
        if is_old { error(401, "UNAUTHENTICATED", "") } else { Reply::of(200, "{}") }
    })
    .await;
    let tokens = tokens().await;
    deliver(&sink(&server, &tokens), push("m", "tok")).await.unwrap();
    assert_eq!((tokens.seen().len(), server.seen().len()), (2, 2));
}

#[tokio::test]
async fn a_refused_service_account_is_a_credential_and_a_failing_token_server_is_not() {
    let server = PushServer::start(|_| Reply::of(200, "{}")).await;
    let refuses = PlainServer::start(|_| Reply::of(400, r#"{"error":"invalid_grant"}"#)).await;
    let failure = deliver(&sink(&server, &refuses), push("m", "tok")).await.unwrap_err();
    assert_eq!(failure.class(), Class::Credential);
    let text = failure.chain();
    assert!(text.starts_with("the service account was refused: 400: invalid_grant ["), "{text}");
    let fails = PlainServer::start(|_| Reply::of(503, "")).await;
    let failure: Failure = deliver(&sink(&server, &fails), push("m", "tok")).await.unwrap_err();
    assert_eq!((failure.class(), failure.is_ambiguous()), (Class::Transient, false));
    assert!(server.seen().is_empty(), "nothing was pushed without a token");
}

#[tokio::test]
async fn what_fcm_would_refuse_costs_no_quota() {
    let (server, tokens) = (PushServer::start(|_| Reply::of(200, "{}")).await, tokens().await);
    let sink = sink(&server, &tokens);
    for payload in ["", "{}", r#"{"token":"a","topic":"b"}"#] {
        let message = Message::builder("m").payload(payload).build().unwrap();
        assert_eq!(deliver(&sink, message).await.unwrap_err().class(), Class::Permanent);
    }
    assert_eq!((server.seen().len(), tokens.seen().len()), (0, 0));
}
