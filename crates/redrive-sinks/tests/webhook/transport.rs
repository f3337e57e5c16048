//! Behaviour below HTTP: timeouts, resets, long and slow bodies, the reuse of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redrive::{Class, Failure, FailureKind};
use redrive_sinks::webhook::{HeaderFrom, Trouble, WebhookError};
use redrive_sinks::{Names, WebhookOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::server::{Server, deliver, failure, note, order, read_request, response, scripted, sink, to};

const SHORT: Duration = Duration::from_secs(1);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn short(url: impl Into<String>) -> WebhookOptions {
    WebhookOptions { timeout: SHORT, ..to(url) }
}

fn trouble(failure: &Failure) -> Option<Trouble> {
    match failure.downcast_ref() {
        Some(WebhookError::Unanswered { trouble, .. }) => Some(*trouble),
        _ => None,
    }
}

#[tokio::test]
async fn a_request_arrives_with_its_headers_and_its_body() {
    let server = Server::saying(200, &[], "").await;
    let mut options = to(server.url("/hook?x=1"));
    options.headers.push(HeaderFrom::setting("authorization", "Bearer s3cr3t-token"));
    let message = order().key("c-7").header("x-src", "web").header("traceparent", "00-aa-bb-01");
    deliver(&sink(options), message).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!((seen.path.as_str(), &*seen.body), ("/hook?x=1", &b"{}"[..]));
    for (name, value) in [
        ("host", server.address.to_string().as_str()),
        ("webhook-id", "o-1"),
        ("redrive-attempt", "1"),
        ("redrive-pipeline", "orders"),
        ("redrive-key", "c-7"),
        ("redrive-header-x-src", "web"),
        ("traceparent", "00-aa-bb-01"),
        ("authorization", "Bearer s3cr3t-token"),
        ("content-type", "application/json"),
        ("content-length", "2"),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    assert!(seen.header("webhook-timestamp").parse::<u64>().unwrap() > 1_700_000_000);
}

#[tokio::test]
async fn a_message_without_a_payload_is_an_empty_post() {
    let server = Server::saying(204, &[], "").await;
    deliver(&sink(to(server.url("/"))), redrive::Message::builder("tombstone")).await.unwrap();
    assert_eq!(server.seen()[0].header("content-length"), "0");
    assert!(server.seen()[0].body.is_empty());
}

#[tokio::test]
async fn a_payload_larger_than_every_buffer_arrives_whole() {
    let server = Server::saying(200, &[], "").await;
    let payload = vec![b'x'; 5 * 1024 * 1024];
    deliver(&sink(to(server.url("/"))), redrive::Message::builder("large").payload(payload.clone()))
        .await
        .unwrap();
    assert_eq!(server.seen()[0].body.len(), payload.len());
}

#[tokio::test]
async fn of_several_addresses_one_that_answers_is_enough() {
    let server = Server::saying(200, &[], "").await;
    let names = Names::by(|_| {
        let found = ["127.0.0.2", "127.0.0.1"].map(|address| address.parse().unwrap());
        async move { Ok(found.to_vec()) }
    });
    let url = format!("http://two.example:{}/", server.address.port());
    deliver(&sink(WebhookOptions { names, ..to(url) }), order()).await.unwrap();
}

#[tokio::test]
async fn nobody_listening_is_transient_and_certainly_without_effect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let failed = failure(&sink(to(format!("http://{address}/"))), order()).await;
    assert_eq!((failed.class(), trouble(&failed)), (Class::Transient, Some(Trouble::Refused)));
    assert_eq!((failed.chain().as_str(), failed.kind()), ("connection refused", FailureKind::Refused));
    assert!(!failed.is_ambiguous());
    assert!(note(&failed, "endpoint_hash").unwrap().starts_with("hmac-sha256:"));
    assert_eq!(note(&failed, "status_code"), None);
}

#[tokio::test]
async fn a_host_without_an_address_is_transient_and_certainly_without_effect() {
    let names = Names::by(|_| async { Err(std::io::Error::other("no such host")) });
    let options = WebhookOptions { names, ..to("http://nowhere.example/") };
    let failed = failure(&sink(options), order()).await;
    assert_eq!((failed.class(), trouble(&failed)), (Class::Transient, Some(Trouble::Dns)));
    assert_eq!(failed.chain(), "the host name could not be resolved");
    assert_eq!(failed.kind(), FailureKind::Dns);
    assert!(!failed.is_ambiguous());
}

#[tokio::test]
async fn a_timeout_before_anything_was_sent_is_not_ambiguous() {
    let names = Names::by(|_| std::future::pending());
    let slow_name = failure(&sink(WebhookOptions { names, ..short("http://slow.example/") }), order()).await;
    // Accepts the connection and never sends anything: the TLS handshake does not complete.
    let silent = scripted(|stream| async move {
        tokio::time::sleep(Duration::from_mins(1)).await;
        drop(stream);
    })
    .await;
    let no_handshake = failure(&sink(short(format!("https://localhost:{}/", silent.port()))), order()).await;
    for failed in [slow_name, no_handshake] {
        assert_eq!((failed.class(), trouble(&failed)), (Class::Transient, Some(Trouble::Timeout)));
        assert_eq!(failed.chain(), "timed out after 1000 ms, connecting");
        assert!(!failed.is_ambiguous());
    }
}

#[tokio::test]
async fn a_timeout_after_the_request_was_sent_is_ambiguous() {
    let server = Server::answering(|_| std::future::pending()).await;
    let failed = failure(&sink(short(server.url("/"))), order()).await;
    assert_eq!((failed.class(), trouble(&failed)), (Class::Transient, Some(Trouble::Timeout)));
    assert_eq!(failed.chain(), "timed out after 1000 ms, waiting for the answer");
    assert!(failed.is_ambiguous());
    assert_eq!(server.seen().len(), 1);
}

/// 1xx is never the final answer, so a receiver that sends nothing else has not answered. But the status is reported.
#[tokio::test]
async fn an_answer_that_is_not_final_is_named() {
    for (stays, text) in [
        (true, "timed out after 1000 ms, waiting for the answer"),
        (false, "the connection was closed before the end of the answer"),
    ] {
        let address = scripted(move |mut stream| async move {
            read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 199 Odd\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            if stays {
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
        })
        .await;
        let failed = failure(&sink(short(format!("http://{address}/"))), order()).await;
        let text = format!("the receiver answered 199, which is not a final status; {text}");
        assert_eq!((failed.class(), failed.chain()), (Class::Transient, text));
        assert!(failed.is_ambiguous());
    }
}

/// Sends a head, then one byte at a time for ever.
async fn dripping(head: &'static str) -> String {
    let address = scripted(move |mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(head.as_bytes()).await.unwrap();
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    format!("http://{address}/")
}

#[tokio::test]
async fn the_timeout_covers_a_body_that_drips() {
    let url = dripping("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n").await;
    let failed = failure(&sink(short(url)), order()).await;
    assert_eq!(failed.chain(), "200 OK: timed out after 1000 ms, reading the answer");
    assert_eq!((failed.class(), trouble(&failed)), (Class::Transient, Some(Trouble::Timeout)));
    assert!(failed.is_ambiguous());
    assert_eq!(note(&failed, "status_code"), Some("200"));
}

#[tokio::test]
async fn a_failure_is_known_by_its_head_even_if_its_body_never_ends() {
    let url = dripping("HTTP/1.1 410 Gone\r\ncontent-length: 9999\r\n\r\n").await;
    let failed = failure(&sink(short(url)), order()).await;
    assert_eq!(failed.class(), Class::Gone);
    assert!(failed.chain().starts_with("410 Gone: xx"), "{failed}");
    assert!(!failed.is_ambiguous());
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_is_ambiguous() {
    // Closed without an answer, reset, and cut off in the middle of a successful body.
    let closed = scripted(|mut stream| async move {
        read_request(&mut stream).await;
    })
    .await;
    let reset = scripted(|mut stream| async move {
        read_request(&mut stream).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let cut = scripted(|mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc").await.unwrap();
    })
    .await;
    let garbage = scripted(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"SSH-2.0-OpenSSH\r\n\r\n").await;
    })
    .await;
    for address in [closed, reset, cut, garbage] {
        let failed = failure(&sink(to(format!("http://{address}/"))), order()).await;
        assert_eq!((failed.class(), trouble(&failed)), (Class::Transient, Some(Trouble::Reset)), "{failed}");
        assert!(failed.is_ambiguous(), "{failed}");
    }
}

#[tokio::test]
async fn a_huge_answer_is_read_only_to_its_bound() {
    let written = Arc::new(AtomicUsize::new(0));
    for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 500 No\r\ncontent-length: 1000000000\r\n\r\n"] {
        let counted = Arc::clone(&written);
        let address = scripted(move |mut stream| {
            let counted = Arc::clone(&counted);
            async move {
                read_request(&mut stream).await;
                stream.write_all(head.as_bytes()).await.unwrap();
                let chunk = vec![b'x'; 1024 * 1024];
                while stream.write_all(&chunk).await.is_ok() {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
        .await;
        let outcome = deliver(&sink(to(format!("http://{address}/"))), order()).await;
        // The head determines the outcome; data beyond the limit is never read, and the connection is closed.
        assert_eq!(
            outcome.err().map(|failure| failure.class()),
            head.contains("500").then_some(Class::Transient)
        );
    }
    assert!(written.load(Ordering::SeqCst) < 100, "the sockets' buffers and no more");
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let address = scripted(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(format!("x: {}\r\n", "y".repeat(1000)).as_bytes()).await.is_ok() {}
    })
    .await;
    let failed = failure(&sink(to(format!("http://{address}/"))), order()).await;
    assert_eq!(trouble(&failed), Some(Trouble::Reset), "{failed}");
}

#[tokio::test]
async fn connections_are_used_again_also_after_failures() {
    let server = Server::answering(|seen| async move {
        let status = if seen.header("webhook-id") == "bad" { 503 } else { 200 };
        response(status, &[], "some text")
    })
    .await;
    let sink = sink(to(server.url("/")));
    for _ in 0..5 {
        deliver(&sink, order()).await.unwrap();
        failure(&sink, redrive::Message::builder("bad")).await;
    }
    assert_eq!(server.seen().len(), 10);
    // A request that starts before the connection is back in the pool may open a second one.
    assert!(server.connections() <= 2, "{}", server.connections());
}

#[tokio::test]
async fn a_connection_that_the_server_closed_while_idle_is_replaced_without_a_failure() {
    let address = scripted(|mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
    })
    .await;
    let sink = sink(to(format!("http://{address}/")));
    for _ in 0..5 {
        deliver(&sink, order()).await.unwrap();
        // Wait for the end of the connection to arrive.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_connection_that_closes_on_the_next_request_is_a_failure_and_no_silent_second_send() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let address = scripted(move |mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            // Answers once, reads the second request and closes: it may have had an effect.
            read_request(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
            stream.write_all(OK).await.unwrap();
            if read_request(&mut stream).await {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    })
    .await;
    let sink = sink(to(format!("http://{address}/")));
    deliver(&sink, order()).await.unwrap();
    let failed = failure(&sink, order()).await;
    assert_eq!((trouble(&failed), failed.is_ambiguous()), (Some(Trouble::Reset), true));
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_secret_is_in_no_debug_output_and_no_error() {
    let echo = Server::answering(|seen| async move {
        let body = format!("bad {} for {}", seen.header("authorization"), seen.path);
        response(401, &[("redrive-reason", String::new())], &body)
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "Bearer s3cr3t-token\n").unwrap();
    let token = dir.path().join("token").display().to_string();
    let mut options = to(echo.url("/hooks/T0123/B0456?key=abcdef123"));
    options.headers.push(HeaderFrom::setting("authorization_file", &token));
    let options_shown = format!("{options:?}");
    let sink = sink(options);
    let failed = failure(&sink, order()).await;
    let shown = format!("{options_shown} {sink:?} {failed:?} {failed} {}", failed.chain());
    assert_eq!(echo.seen()[0].header("authorization"), "Bearer s3cr3t-token");
    for secret in ["s3cr3t", "T0123", "abcdef123", "127.0.0.1"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    assert_eq!(failed.chain(), "401 Unauthorized: bad [secret] for [path]");
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_not_used() {
    const CHILD: &str = "REDRIVE_TEST_WEBHOOK_URL";
    if let Ok(url) = std::env::var(CHILD) {
        return deliver(&sink(to(url)), order()).await.unwrap();
    }
    let server = Server::saying(200, &[], "").await;
    let test = "transport::a_proxy_of_the_environment_is_not_used";
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test]).env(CHILD, server.url("/"));
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        child.env(name, "http://127.0.0.1:9");
    }
    assert!(child.output().await.unwrap().status.success());
    assert_eq!(server.seen().len(), 1);
}
