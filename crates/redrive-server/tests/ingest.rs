//! Messages arriving over real HTTP, with the embedded engine.

mod support;

use std::sync::Arc;
use std::time::Duration;

use redrive::{Message, Pipeline, Redrive};
use redrive_core::Pick;
use redrive_server::Intake;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;

use support::{OPS, PATIENCE, Request, Setup, start, start_with};

const MESSAGES: &str = "/v1/pipelines/orders/messages";

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_without_a_broker_answers_as_in_its_story() {
    let server = start_with(Setup { tiers: &["1h"], ..Setup::default() }).await;
    let path = "/v1/pipelines/invoices/messages";
    let body = r#"{"id":"inv-1","key":"acme","ttl":"3h","payload":{"amount":100,"note":"flaky"}}"#;
    let first = server.post(path, body).await;
    assert_eq!(
        (first.status, &*first.text),
        (202, concat!(r#"{"id":"inv-1","state":"ready","duplicate":false}"#, "\n"))
    );

    let message = server
        .wait_for("/v1/pipelines/invoices/messages/inv-1", |message| message["state"] == "delayed")
        .await;
    assert_eq!((&message["id"], &message["attempts"]), (&json!("inv-1"), &json!(1)));
    let history = message["history"].as_array().unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!(history[0]["error"], "503 Service Unavailable");
    assert_eq!((&history[0]["class"], &history[0]["decision"]), (&json!("transient"), &json!("retry_at")));
    let delay_ms = history[0]["delay_ms"].as_u64().unwrap();
    assert!((3_599_000..=3_600_000).contains(&delay_ms), "{delay_ms}");
    for time in ["due", "deadline"] {
        let text = message[time].as_str().unwrap();
        assert!(text.len() == 24 && text.ends_with('Z'), "{text}");
    }

    // The client timed out and sends again.
    let again = server.post(path, body).await;
    assert_eq!(
        (again.status, &*again.text),
        (200, concat!(r#"{"id":"inv-1","state":"delayed","duplicate":true}"#, "\n"))
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_twice_is_delivered_once_and_its_state_is_told() {
    let server = start().await;
    server.post(MESSAGES, r#"{"id":"o/1 ü","payload":1}"#).await.expect(202);
    // Ids may contain anything; in a URL they are escaped.
    let path = "/v1/pipelines/orders/messages/o%2F1%20%C3%BC";
    let message = server.wait_for(path, |message| message["state"] == "succeeded").await;
    assert_eq!(message["attempts"], serde_json::Value::Null, "it is not stored: {message}");
    let again = server.post(MESSAGES, r#"{"id":"o/1 ü","payload":1}"#).await.expect(200);
    assert_eq!(again["state"], "succeeded");
    assert_eq!(server.delivered(), 1);
    let made = server.post(MESSAGES, "{}").await.expect(202);
    assert_eq!(made["id"].as_str().unwrap().len(), 36);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_message_is_there_after_the_server_is_gone() {
    let server = start_with(Setup { run: false, ..Setup::default() }).await;
    server.post(MESSAGES, r#"{"id":"o-1","payload":{"n":18446744073709551615, "a":1}}"#).await.expect(202);
    // The state of the disk when the answer came, as if the process had been killed then.
    let dir = server.copy();
    let store = redrive::Embedded::open(dir.path().join("data")).unwrap();
    let delivered = Arc::new(Notify::new());
    let notify = Arc::clone(&delivered);
    let pipeline =
        Pipeline::new("orders").dedup(Duration::from_hours(24)).handler_fn(move |message: Message| {
            assert_eq!(message.payload(), Some(&br#"{"n":18446744073709551615, "a":1}"#[..]));
            notify.notify_one();
            async { Ok(()) }
        });
    let redrive = Redrive::builder().engine(store).pipeline(pipeline).build().unwrap();
    let report = redrive.run_until(delivered.notified()).await.unwrap();
    assert_eq!(report.total().succeeded, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_lines_are_accepted_or_refused_as_a_whole() {
    let server = start().await;
    let line =
        |n: usize| format!("{{\"id\":\"o-{n}\",\"key\":\"c-{}\",\"payload\":{{\"n\":{n}}}}}\n", n % 100);
    let good: String = (0..10_000).map(line).collect();
    let bad = good.replacen("{\"id\":\"o-7776\",\"key\"", "{\"id\":\"o-7776\",\"kee\"", 1);

    let refused = server.post_lines(MESSAGES, &bad).await.expect(422);
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("line 7777: ") && message.contains("`kee`"), "{message}");
    assert!(refused["hint"].as_str().unwrap().contains("did you mean `key`"), "{refused}");
    assert_eq!(server.get("/v1/pipelines/orders/messages/o-0").await.status, 404);

    let accepted = server.post_lines(MESSAGES, &good).await.expect(202);
    assert_eq!(accepted, json!({ "accepted": 10_000, "duplicates": 0 }));
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["succeeded"] == 10_000).await;
    let again = server.post_lines(MESSAGES, &good).await.expect(200);
    assert_eq!(again, json!({ "accepted": 0, "duplicates": 10_000 }));
    assert_eq!(server.delivered(), 10_000);

    let ids = server.post_lines(&format!("{MESSAGES}?ids=true"), "{}\n{\"id\":\"mine\"}\n").await.expect(202);
    assert_eq!((ids["ids"].as_array().unwrap().len(), &ids["ids"][1]), (2, &json!("mine")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_name_what_is_wrong_and_the_way_out() {
    let server = start().await;
    for (path, body, status, code, in_text) in [
        (MESSAGES, "{\"idd\":1}", 422, "bad_message", "did you mean `id`"),
        (MESSAGES, "not json", 422, "bad_message", "one JSON object"),
        (MESSAGES, "{\"ttl\":\"soon\"}", 422, "bad_message", "`ttl`"),
        ("/v1/pipelines/order/messages", "{}", 404, "not_found", "did you mean `orders`"),
        ("/v1/pipelines/banana/messages", "{}", 404, "not_found", "orders, invoices"),
        ("/v1/pipelines/orders/messages?id=1", "{}", 400, "bad_request", "id"),
        ("/v1/nothing", "{}", 404, "not_found", "openapi.json"),
        ("/v1/pipelines", "{}", 405, "method_not_allowed", "Allow"),
    ] {
        let answer = server.post(path, body).await;
        let problem = answer.json();
        assert_eq!((answer.status, &problem["code"]), (status, &json!(code)), "{path} {body}: {problem}");
        assert!(problem.to_string().contains(in_text), "{path} {body}: {problem}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_refused_before_it_is_read() {
    let mut setup = Setup::default();
    setup.options.body_bytes_max = 1_000;
    let server = start_with(setup).await;
    let large = format!("{{\"payload\":\"{}\"}}", "x".repeat(1_000));
    let answer = server.post(MESSAGES, &large).await;
    assert_eq!((answer.status, &answer.json()["code"]), (413, &json!("too_large")), "{}", answer.text);
    // The limit also applies without a length.
    let chunked = format!(
        "POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {OPS}\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    assert_eq!(server.raw(chunked.as_bytes()).await.status, 413);
    server.post(MESSAGES, "{\"payload\":\"small\"}").await.expect(202);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_max_pending_senders_are_told_to_come_back() {
    let server = start_with(Setup { max_pending: 3, tiers: &["1h"], ..Setup::default() }).await;
    for n in 0..3 {
        server.post(MESSAGES, &format!("{{\"id\":\"o-{n}\",\"payload\":\"flaky\"}}")).await.expect(202);
    }
    let answer = server.post(MESSAGES, "{\"id\":\"o-3\"}").await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("too_many_pending")), "{}", answer.text);
    assert!(answer.header("retry-after").is_some());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_for_bodies_is_bounded_over_all_requests() {
    let mut setup = Setup::default();
    setup.options.body_bytes_max = 64 * 1024;
    setup.options.bodies_bytes_max = 64 * 1024;
    let server = start_with(setup).await;
    // One sender announces a large body, sends most of it and is slow with the rest.
    let announced = format!(
        "POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OPS}\r\ncontent-length: 65000\r\n"
    );
    let body = format!("{{\"payload\":\"{}\"}}", "x".repeat(10_000));
    // Announcing alone does not block others, however often.
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(server.begin(&announced).await);
    }
    server.post(MESSAGES, &body).await.expect(202);
    drop(idle);
    let mut slow = server.begin(&announced).await;
    slow.write_all("x".repeat(60_000).as_bytes()).await.unwrap();
    let begun = std::time::Instant::now();
    // It holds the memory once its data was read.
    let busy = loop {
        let answer = server.post(MESSAGES, &body).await;
        if answer.status == 429 {
            break answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", answer.text);
    };
    assert_eq!(busy.json()["code"], "busy");
    assert!(busy.header("retry-after").is_some());
    drop(slow);
    server.wait_until_accepted(MESSAGES, &body).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_messages_wait_and_ids_are_found_where_the_pipeline_says() {
    let intake = Intake {
        id: Some(Pick::Json("/order_id".to_owned())),
        tenant: Some(Pick::Header("x-tenant".to_owned())),
    };
    let server = start_with(Setup { intake, ..Setup::default() }).await;
    let body = r#"{"delay":"1h","headers":{"X-Tenant":"acme"},"payload":{"order_id":4711}}"#;
    let answer = server.post(MESSAGES, body).await.expect(202);
    assert_eq!(answer, json!({ "id": "4711", "state": "delayed", "duplicate": false }));
    let message = server.get("/v1/pipelines/orders/messages/4711").await.expect(200);
    assert_eq!((&message["state"], &message["history"]), (&json!("delayed"), &Value::Array(Vec::new())));
    let missing = server.post(MESSAGES, r#"{"payload":{}}"#).await.expect(422);
    assert!(missing["message"].as_str().unwrap().contains("json:/order_id"), "{missing}");
    let request = Request {
        method: "POST",
        path: MESSAGES,
        token: Some(OPS),
        body: b"{\"id\":\"x\",\"due\":0}",
        ..Request::default()
    };
    server.send(request).await.expect(202);
    server.stop().await;
}

/// In a paused pipeline a message does not start by itself, so the hint must not say so.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_a_paused_pipeline_that_is_due_already_starts_after_resume() {
    let server = start().await;
    server.post("/v1/pipelines/orders/pause", "").await.expect(200);
    server.post("/v1/pipelines/orders/messages", r#"{"id":"o-1"}"#).await.expect(202);
    let problem = server.post("/v1/pipelines/orders/messages/o-1/retry", "").await.expect(409);
    let hint = problem["hint"].as_str().unwrap();
    assert!(hint.contains("paused") && hint.contains("`redrive resume orders`"), "{hint}");
    server.stop().await;
}
