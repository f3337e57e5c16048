//! Invalid requests: each answer explains the problem in its own words, and its hint works.

mod support;

use redrive_server::openapi;
use redrive_server::routes::{ROUTES, Route};
use serde_json::{Value, json};
use support::{OPS, Request, Running, start};

const MESSAGES: &str = "/v1/pipelines/orders/messages";
const LETTERS: &str = "/v1/pipelines/orders/letters";

/// Phrases of underlying libraries, which do not help the sender of a request.
const FOREIGN: [&str; 9] = [
    "Failed to deserialize",
    "invalid digit",
    "invalid type",
    "trailing characters",
    "EOF while",
    "struct ",
    "expected ",
    "missing field",
    "unknown field",
];

fn own_words(problem: &Value) -> (&str, &str) {
    let text = |field: &str| problem[field].as_str().unwrap_or_else(|| panic!("no {field}: {problem}"));
    let (message, hint) = (text("message"), text("hint"));
    for foreign in FOREIGN {
        assert!(!message.contains(foreign), "{problem}");
    }
    assert!(!hint.is_empty(), "{problem}");
    (message, hint)
}

async fn accepted(server: &Running, id: &str) -> bool {
    server.get(&format!("{MESSAGES}/{id}")).await.status == 200
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_an_object_and_never_a_list_of_fields() {
    let server = start().await;
    for (body, is) in [
        (r#"["o-1","key",{"n":1}]"#, "an array"),
        ("[]", "an array"),
        (r#""o-1""#, "a string"),
        ("17", "a number"),
        ("true", "true or false"),
        ("null", "null"),
        ("", "empty"),
    ] {
        let problem = server.post(MESSAGES, body).await.expect(422);
        let (message, hint) = own_words(&problem);
        assert!(message.contains("a message is a JSON object"), "{body}: {message}");
        assert!(message.contains(is), "{body}: {message}");
        assert!(hint.contains(r#"{"id":"#), "{body}: {hint}");
    }
    assert!(!accepted(&server, "o-1").await);
    // The same mistake in one of many lines, and in the body of another request.
    let problem = server.post_lines(MESSAGES, "{\"id\":\"o-1\"}\n[\"o-2\"]\n").await.expect(422);
    let message = problem["message"].as_str().unwrap();
    assert!(message.starts_with("line 2: ") && message.contains("a message is a JSON object"), "{message}");
    assert!(!accepted(&server, "o-1").await);
    let problem = server.post("/v1/replays", r#"["orders"]"#).await.expect(400);
    assert!(own_words(&problem).0.contains("a JSON object, and this is an array"), "{problem}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_objects_without_their_content_type_are_told_the_content_type() {
    let server = start().await;
    let lines = "{\"id\":\"o-1\"}\n{\"id\":\"o-2\"}\n";
    for body in [lines, r#"{"id":"o-1"}{"id":"o-2"}"#] {
        let problem = server.post(MESSAGES, body).await.expect(422);
        let (message, hint) = own_words(&problem);
        assert!(message.contains("more than one JSON object"), "{message}");
        assert!(hint.contains("Content-Type: application/x-ndjson"), "{hint}");
    }
    assert!(!accepted(&server, "o-1").await);
    // A request that follows the hint is accepted.
    server.post_lines(MESSAGES, lines).await.expect(202);
    // The opposite mistake: one object over several lines, announced as one per line.
    let problem = server.post_lines(MESSAGES, "{\n\"id\":\"o-3\"\n}\n").await.expect(422);
    let (message, hint) = own_words(&problem);
    assert!(message.starts_with("line 1: ") && message.contains("ends in the middle"), "{message}");
    assert!(hint.contains("one line"), "{hint}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_gets_the_hint_of_its_own_limit() {
    let server = start().await;
    let long = "x".repeat(513);
    for (body, part, in_hint) in [
        (json!({ "id": long }), "id has 513 bytes, at most 512", "`id`"),
        (json!({ "id": "a", "tenant": long }), "tenant has 513 bytes, at most 256", "`tenant`"),
        (json!({ "id": "a", "key": "k".repeat(40_000) }), "key has 40000 bytes", "`key`"),
        (json!({ "id": "a", "headers": { "h": "v".repeat(300_000) } }), "headers has", "`headers`"),
    ] {
        let problem = server.post(MESSAGES, &body.to_string()).await.expect(413);
        let (message, hint) = own_words(&problem);
        assert!(message.contains(part), "{message}");
        assert!(hint.contains(in_hint), "{part}: {hint}");
        assert!(!hint.contains("large bodies"), "{part}: {hint}");
    }
    server.post(MESSAGES, &json!({ "id": "x".repeat(512) }).to_string()).await.expect(202);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_refused_in_words_of_this_api() {
    let server = start().await;
    for (query, said) in [
        ("limit=-1", "`limit` is \"-1\""),
        ("limit=many", "`limit` is \"many\""),
        ("limit=99999999999999999999", "`limit` is \"99999999999999999999\""),
        ("cursor=abc", "`cursor` is \"abc\""),
        ("cursor=-1", "`cursor` is \"-1\""),
        ("payload=yes", "`payload` is \"yes\""),
        ("limt=3", "`limt`"),
    ] {
        let problem = server.get(&format!("{LETTERS}?{query}")).await.expect(400);
        let (message, hint) = own_words(&problem);
        assert!(message.contains(said), "{query}: {message}");
        let way_out = match query.split_once('=').unwrap().0 {
            "limit" => "limit=100",
            "cursor" => "`next`",
            "payload" => "payload=true",
            _ => "limit",
        };
        assert!(hint.contains(way_out), "{query}: {hint}");
    }
    let problem = server.get("/v1/actions?limit=-1").await.expect(400);
    assert!(own_words(&problem).0.contains("`limit` is \"-1\""), "{problem}");
    let problem = server.post(&format!("{MESSAGES}?ids=yes"), "{}").await.expect(400);
    assert!(own_words(&problem).0.contains("`ids` is \"yes\""), "{problem}");
    server.get(&format!("{LETTERS}?limit=100&payload=true")).await.expect(200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_of_nothing_is_refused_also_in_a_dry_run() {
    let server = start().await;
    for dry_run in [false, true] {
        for rate in [json!(0), json!(-5), json!(1e12), json!(1e308), json!(1e-308)] {
            let body = json!({ "pipeline": "orders", "all": true, "rate": rate, "dry_run": dry_run });
            let problem = server.post("/v1/replays", &body.to_string()).await.expect(400);
            let (message, hint) = own_words(&problem);
            assert!(message.contains("`rate`"), "{message}");
            assert!(hint.contains("leave `rate` (--rate) out"), "{hint}");
            assert!(message.len() < 100, "{message}");
        }
    }
    let body = json!({ "pipeline": "orders", "all": true, "dry_run": true });
    server.post("/v1/replays", &body.to_string()).await.expect(200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_scheme_than_bearer_is_named() {
    let server = start().await;
    let asked = |authorization: &'static str| {
        let head = format!(
            "POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: {authorization}\r\n\
             content-length: 2\r\n\r\n{{}}"
        );
        let server = &server;
        async move { server.raw(head.as_bytes()).await.expect(401) }
    };
    for (authorization, named) in [
        ("Basic b3BzOm9wcw==", "`Basic`"),
        ("Digest username=ops", "`Digest`"),
        ("ops-secret-0123456789", "no scheme"),
    ] {
        let problem = asked(authorization).await;
        let (message, hint) = own_words(&problem);
        assert!(message.contains(named), "{authorization}: {message}");
        assert!(hint.contains("Authorization: Bearer"), "{hint}");
        assert!(!problem.to_string().contains("b3Bz"), "{problem}");
        assert!(!problem.to_string().contains("ops-secret"), "{problem}");
    }
    assert!(asked("Bearer nobody-knows-this-one").await["message"].as_str().unwrap().contains("not known"));
    let request =
        Request { method: "POST", path: MESSAGES, token: Some(OPS), body: b"{}", ..Request::default() };
    server.send(request).await.expect(202);
    server.stop().await;
}

/// The path of a route with its variable parts filled in.
fn path_of(route: &Route) -> String {
    let path = route.path.replace("{pipeline}", "orders").replace("{*key}", "x").replace("{id}", "r-1");
    path.replace("{*id}", "x")
}

/// A client that sends `{"now":true}` instead of `?now=true` expects it to have an effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_where_none_is_taken_is_refused_and_nothing_is_done() {
    let server = start().await;
    let document = openapi::document();
    for route in ROUTES.iter().filter(|route| route.operation.method() == "POST") {
        let described = &document["paths"][route.path.replace("{*", "{")]["post"];
        if described["requestBody"].is_object() {
            continue;
        }
        let path = path_of(route);
        for (body, said) in [
            (r#"{"now":"#, "not JSON"),
            (r#"{"now":"x"}"#, "`now`"),
            ("[]", "not an object"),
            ("\0\0\0", "not JSON"),
        ] {
            let problem = server.post(&path, body).await.expect(400);
            let (message, hint) = own_words(&problem);
            assert!(message.contains("takes no body") && message.contains(said), "{path}: {message}");
            assert!(hint.contains("nothing was done"), "{path}: {hint}");
        }
        let large = "\0".repeat(1 << 20);
        assert!(server.post(&path, &large).await.expect(413)["message"].to_string().contains("no body"));
        let chunked = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {OPS}\r\ntransfer-encoding: chunked\r\n\r\n\
             10000\r\n{}\r\n0\r\n\r\n",
            "\0".repeat(0x10000)
        );
        server.raw(chunked.as_bytes()).await.expect(413);
    }
    let pipeline = server.get("/v1/pipelines/orders").await.expect(200);
    assert_eq!(pipeline["paused"], false, "{pipeline}");
    assert_eq!(server.get("/v1/actions").await.expect(200)["actions"], json!([]));
    // No body, white space and an empty object are accepted.
    for (word, body) in [("pause", ""), ("resume", " \n"), ("pause", "{}"), ("resume", " { } ")] {
        server.post(&format!("/v1/pipelines/orders/{word}"), body).await.expect(200);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_that_nobody_reads_is_refused_on_every_route_of_the_api() {
    let server = start().await;
    for route in ROUTES.iter().filter(|route| route.path.starts_with("/v1/")) {
        let method = route.operation.method();
        let path = format!("{}?zzz=1", path_of(route));
        let request =
            Request { method: method.as_str(), path: &path, token: Some(OPS), ..Request::default() };
        let problem = server.send(request).await.expect(400);
        let (message, hint) = own_words(&problem);
        assert!(message.contains("there is no parameter `zzz`"), "{method} {path}: {message}");
        assert!(!hint.is_empty());
    }
    for list in [LETTERS, MESSAGES, "/v1/actions", "/v1/replays"] {
        for limit in ["-1", "0", "x"] {
            let problem = server.get(&format!("{list}?limit={limit}")).await.expect(400);
            assert!(own_words(&problem).0.contains("`limit`"), "{list}: {problem}");
        }
    }
    server.get("/livez?zzz=1").await.expect(200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_of_the_wrong_kind_is_named_with_what_was_given_and_what_is_wanted() {
    let server = start().await;
    let discard = format!("{LETTERS}/discard");
    let undo = format!("{LETTERS}/undo");
    for (path, status, body, said) in [
        (
            "/v1/replays",
            400,
            r#"{"pipeline":"orders","rate":"5/h"}"#,
            "`rate` is \"5/h\", which is not a number",
        ),
        ("/v1/replays", 400, r#"{"pipeline":"orders","filter":{}}"#, "`filter` is {}, which is not a string"),
        ("/v1/replays", 400, r#"{"pipeline":"orders","ids":"a"}"#, "`ids` is \"a\", which is not an array"),
        ("/v1/replays", 400, r#"{"all":true}"#, "the field `pipeline` is missing"),
        ("/v1/replays", 400, r#"{"pipeline":"orders","al":true}"#, "there is no field `al`"),
        ("/v1/replays", 400, r#"{"pipeline":"orders""#, "ends in the middle"),
        ("/v1/replays", 400, r#"{"pipeline" "orders"}"#, "not valid JSON at line 1 column 13"),
        (&discard, 400, r#"{"all":"yes","reason":"x"}"#, "`all` is \"yes\", which is not true or false"),
        (&undo, 400, r#"{"id":7}"#, "`id` is 7, which is not a string"),
        (MESSAGES, 422, r#"{"id":"a","ttl":30}"#, "`ttl` is 30, which is not a string"),
        (MESSAGES, 422, r#"{"id":"a","due":[]}"#, "`due` is [], which is not a time like"),
        (MESSAGES, 422, r#"{"id":"a","headers":{"x":1}}"#, "`headers` is {\"x\":1}, which is not an object"),
    ] {
        let problem = server.post(path, body).await.expect(status);
        let (message, hint) = own_words(&problem);
        assert!(message.contains(said), "{body}: {message}");
        assert!(!hint.is_empty());
    }
    assert!(!accepted(&server, "a").await);
    server.stop().await;
}
