//! Every route with every kind of bad input: the answer has a status that the OpenAPI document names, and an error is
//! JSON with `code`, `message` and `hint`. Large refused bodies get an answer, not a broken connection.

mod support;

use std::collections::BTreeMap;

use redrive_server::openapi;
use redrive_server::routes::{ROUTES, Route};
use serde_json::Value;
use support::{Answer, OPS, READER, Request, Running, Setup, start_with};

const BODY_BYTES_MAX: usize = 64 * 1024;

/// Values for a part of a path.
const PARTS: [&str; 12] = [
    "orders",
    "nowhere",
    "x",
    "%ff",
    "%00",
    "%c3%28",
    "%2e%2e",
    "a%2Fb",
    "%1b%5b2J",
    "99999999999999999999",
    "-1",
    "r-1",
];
const QUERIES: [&str; 14] = [
    "",
    "?nothing=1",
    "?limit=x",
    "?limit=-1",
    "?limit=0",
    "?cursor=-1",
    "?cursor=18446744073709551615",
    "?filter=",
    "?filter=%28%28",
    "?filter=%ff",
    "?state=bogus",
    "?since=yesterday",
    "?dead_letter_anyway=maybe",
    "?ids=2&ids=3",
];
const BODIES: [&[u8]; 16] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"{}",
    b"{\"id\":1}",
    b"{\"id\":\"\"}",
    b"{\"id\":\"x\",\"payload\":1,\"payload_base64\":\"AA==\"}",
    b"{\"pipeline\":\"nowhere\",\"all\":true}",
    b"{\"pipeline\":\"orders\",\"all\":true,\"rate\":-1}",
    b"{\"pipeline\":\"orders\",\"ids\":[\"%\"],\"to\":\"moon\"}",
    b"{\"filter\":\"((\",\"reason\":\"x\"}",
    b"{\"all\":true}",
    b"{\"all\":true,\"reason\":\"x\",\"since\":\"never\"}",
    b"{\"id\":\"d-999\"}",
];

/// The documented statuses of a route.
fn documented(document: &Value, route: &Route) -> Vec<u16> {
    let method = route.operation.method().as_str().to_lowercase();
    let responses = &document["paths"][route.path.replace("{*", "{")][&method]["responses"];
    responses.as_object().unwrap().keys().map(|status| status.parse().unwrap()).collect()
}

/// Each way to fill in the last variable part of a path; the earlier ones are valid, or not even text.
fn paths(route: &Route) -> Vec<String> {
    let last = route.path.rfind('{').unwrap_or(route.path.len());
    let (before, rest) = route.path.split_at(last);
    let ways: &[&str] = if rest.is_empty() { &[""] } else { &PARTS };
    let tail = rest.split_once('}').map_or("", |(_, tail)| tail);
    let befores = ["orders", "%ff"].map(|pipeline| before.replace("{pipeline}", pipeline));
    let all = befores.iter().flat_map(|before| ways.iter().map(move |way| format!("{before}{way}{tail}")));
    let mut all: Vec<String> = all.collect();
    all.dedup();
    all
}

fn check(answer: &Answer, allowed: &[u16], what: &str) {
    assert!(allowed.contains(&answer.status), "{what}: {} is not documented: {}", answer.status, answer.text);
    if answer.status >= 400 {
        assert_eq!(answer.header("content-type"), Some("application/json"), "{what}: {}", answer.text);
        let problem = answer.json();
        for field in ["code", "message", "hint"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{what}: {problem}");
        }
    }
}

async fn server() -> Running {
    let mut setup = Setup::default();
    setup.options.body_bytes_max = BODY_BYTES_MAX;
    let server = start_with(setup).await;
    let lines = "{\"payload\":\"poison\"}\n".repeat(5);
    server.post_lines("/v1/pipelines/orders/messages", &lines).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 5).await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_to_bad_input_is_documented_and_says_what_is_wrong() {
    let server = server().await;
    let document = openapi::document();
    let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
    for route in &ROUTES {
        let method = route.operation.method();
        let allowed = documented(&document, route);
        let takes_body = method == "POST";
        for path in paths(route) {
            for query in QUERIES {
                let path = format!("{path}{query}");
                let bodies: &[&[u8]] = if takes_body && query.is_empty() { &BODIES } else { &BODIES[..1] };
                for body in bodies {
                    let request = Request {
                        method: method.as_str(),
                        path: &path,
                        token: Some(OPS),
                        body,
                        ..Request::default()
                    };
                    let answer = server.send(request).await;
                    let what = format!("{method} {path} {}", body.escape_ascii());
                    check(&answer, &allowed, &what);
                    *seen.entry(answer.status).or_default() += 1;
                }
            }
        }
    }
    for status in [400, 404, 409, 422] {
        assert!(seen.contains_key(&status), "{status} was never seen: {seen:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_door_are_documented_too() {
    let server = server().await;
    let document = openapi::document();
    for route in &ROUTES {
        let method = route.operation.method();
        let allowed = documented(&document, route);
        let path = route
            .path
            .replace("{pipeline}", "orders")
            .replace("{*id}", "x")
            .replace("{*key}", "x")
            .replace("{id}", "r-1");
        let send = async |token, body| {
            let request = Request { method: method.as_str(), path: &path, token, body, ..Request::default() };
            server.send(request).await
        };
        for token in [None, Some("nobody-knows-this-one"), Some(READER)] {
            check(&send(token, b"").await, &allowed, &format!("{method} {path} with {token:?}"));
        }
        let head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n\r\n");
        check(&server.raw(head.as_bytes()).await, &allowed, &format!("{method} {path} without Host"));
        // Other methods belong to no operation, and get the same kind of error.
        for other in ["PUT", "DELETE", "PATCH"] {
            let answer = server.send(Request { method: other, path: &path, ..Request::default() }).await;
            check(&answer, &[405], &format!("{other} {path}"));
            assert!(answer.header("allow").is_some(), "{other} {path}");
        }
    }
    check(&server.get("/nowhere").await, &[404], "no such path");
    server.stop().await;
}

/// A client that sends its whole body before it reads must get its answer, not a reset connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_that_is_refused_is_answered_however_much_of_it_is_still_to_come() {
    let server = server().await;
    let body = vec![b'x'; 16 * 1024 * 1024];
    let path = "/v1/pipelines/orders/messages";
    for (token, path, status) in [
        (Some(OPS), path, 413),
        (None, path, 401),
        (Some(READER), path, 403),
        (Some(OPS), "/v1/pipelines/nowhere/messages", 404),
        (Some(OPS), "/v1/pipelines/orders/letters/discard", 413),
    ] {
        let answer =
            server.send_all(Request { method: "POST", path, token, body: &body, ..Request::default() }).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(answer.json()["hint"].is_string());
    }
    // The same for a body without an announced length.
    let mut chunked = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {OPS}\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..64 {
        chunked.extend_from_slice(b"20000\r\n");
        chunked.extend_from_slice(&body[..0x20000]);
        chunked.extend_from_slice(b"\r\n");
    }
    let answer = server.raw(&chunked).await;
    assert_eq!(answer.status, 413);
    server.stop().await;
}
