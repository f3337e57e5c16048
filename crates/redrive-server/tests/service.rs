//! The service around the API: tokens, health, metrics, the page, stopping, and the committed documents.

mod support;

use std::path::Path;
use std::time::Duration;

use redrive_server::{Scope, Server, ServerError, ServerOptions, Token, exposition, metrics, openapi};
use serde_json::json;
use support::{OPS, READER, Request, Setup, start, start_with};

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_what_is_missing_and_never_a_secret() {
    let server = start().await;
    let path = "/v1/pipelines/orders/messages";
    let none = server.send(Request { method: "POST", path, body: b"{}", ..Request::default() }).await;
    assert_eq!(none.header("www-authenticate"), Some("Bearer realm=\"redrive\""));
    assert!(none.json()["message"].as_str().unwrap().contains("`ingest`"), "{}", none.text);
    assert!(none.json()["hint"].as_str().unwrap().contains("REDRIVE_TOKEN"), "{}", none.text);
    let less = server
        .send(Request { method: "POST", path, body: b"{}", token: Some(READER), ..Request::default() })
        .await;
    assert!(less.text.contains("`reader`") && less.text.contains("`ingest`"), "{}", less.text);
    for answer in [none, less] {
        assert!(!answer.text.contains(OPS) && !answer.text.contains(READER));
    }
    // A token in the address is only for the page.
    let sneaky = format!("{path}?token={OPS}");
    assert_eq!(
        server
            .send(Request { method: "POST", path: &sneaky, body: b"{}", ..Request::default() })
            .await
            .status,
        401
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_loopback_nothing_is_open_and_no_token_is_no_start() {
    let mut setup = Setup::default();
    setup.options.listen.set_ip([0, 0, 0, 0].into());
    let server = start_with(setup).await;
    let get = async |path| server.send(Request { path, ..Request::default() }).await.status;
    assert_eq!(get("/v1/pipelines").await, 401);
    assert_eq!(get("/metrics").await, 401);
    for open in ["/livez", "/healthz", "/readyz", "/", "/v1/openapi.json"] {
        assert_eq!(get(open).await, 200, "{open}");
    }
    let reads = Request { path: "/v1/pipelines", token: Some(READER), ..Request::default() };
    assert_eq!(server.send(reads).await.status, 200);

    let exposed = |tokens: Vec<Token>| {
        let options = ServerOptions { listen: ([0, 0, 0, 0], 0).into(), tokens, ..ServerOptions::default() };
        Server::bind(options, support::service(&server.redrive, &tempfile::tempdir().unwrap()))
    };
    let error = exposed(Vec::new()).unwrap_err();
    assert!(matches!(error, ServerError::Exposed { .. }), "{error}");
    assert!(exposed(vec![Token::ephemeral().unwrap()]).is_err());
    let taken = ServerOptions {
        listen: server.address,
        tokens: vec![Token::new("ops", OPS, Scope::ALL).unwrap()],
        ..ServerOptions::default()
    };
    let error =
        Server::bind(taken, support::service(&server.redrive, &tempfile::tempdir().unwrap())).unwrap_err();
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_messages_back_and_is_written_down() {
    let server = start().await;
    let paused = server.post("/v1/pipelines/orders/pause", "").await.expect(200);
    assert_eq!(paused["paused"], true);
    server.post("/v1/pipelines/orders/messages", r#"{"id":"o-1"}"#).await.expect(202);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["pending"]["held"] == 1).await;
    assert_eq!(server.delivered(), 0);
    let resumed = server.post("/v1/pipelines/orders/resume", "").await.expect(200);
    assert_eq!(resumed["paused"], false);
    server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["succeeded"] == 1).await;
    let actions = server.get("/v1/actions").await.expect(200);
    let kinds: Vec<_> =
        actions["actions"].as_array().unwrap().iter().map(|action| action["action"].clone()).collect();
    assert_eq!(kinds, [json!("pause"), json!("resume")]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_shows_the_same_figures_alone_and_in_the_list() {
    let server = start().await;
    server.post("/v1/pipelines/orders/messages", r#"{"payload":"poison"}"#).await.expect(202);
    let one = server.wait_for("/v1/pipelines/orders", |pipeline| pipeline["letters"]["open"] == 1).await;
    for field in [
        "mode",
        "ordering",
        "engine",
        "sink",
        "oldest_pending",
        "retried",
        "attempts",
        "late_p99_ms",
        "end_to_end_p99_ms",
        "breaker",
    ] {
        assert!(one.get(field).is_some(), "{field}");
    }
    assert_eq!(one["policy"]["tiers"], json!(["20ms", "40ms"]));
    assert_eq!(
        (&one["dead"], &one["paused"], &one["mode"]),
        (&json!(1), &json!(false), &json!("non-blocking"))
    );
    let list = server.get("/v1/pipelines").await.expect(200);
    let names: Vec<_> =
        list["pipelines"].as_array().unwrap().iter().map(|pipeline| pipeline["name"].clone()).collect();
    assert_eq!(names, [json!("orders"), json!("invoices")]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_pass_the_linter_and_add_up() {
    let server = start().await;
    // Five failures in a row without a success would count as an outage, and would not die.
    let body = "{\"payload\":1}\n".repeat(50) + &"{\"payload\":\"flaky\"}\n".repeat(4);
    server.post_lines("/v1/pipelines/orders/messages", &body).await.expect(202);
    server
        .wait_for("/v1/pipelines/orders", |pipeline| {
            pipeline["letters"]["open"] == 4 && pipeline["succeeded"] == 50
        })
        .await;
    let answer = server.get("/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(exposition::lint(&answer.text), Vec::<String>::new());
    for line in [
        "redrive_messages_total{pipeline=\"orders\",outcome=\"succeeded\"} 50",
        "redrive_messages_total{pipeline=\"orders\",outcome=\"dead\"} 4",
        "redrive_attempts_total{pipeline=\"orders\",class=\"ok\"} 50",
        "redrive_attempts_total{pipeline=\"orders\",class=\"transient\"} 12",
        "redrive_attempts_per_message_count{pipeline=\"orders\"} 54",
        "redrive_retried_messages_total{pipeline=\"orders\",outcome=\"succeeded\"} 0",
        "redrive_retried_messages_total{pipeline=\"orders\",outcome=\"dead\"} 4",
        "redrive_consumed_total{pipeline=\"orders\",topic=\"orders\",partition=\"0\"} 54",
        "redrive_retries_total{pipeline=\"orders\",tier=\"20ms\"} 4",
        "redrive_retries_total{pipeline=\"orders\",tier=\"40ms\"} 4",
        "redrive_dead_letters_total{pipeline=\"orders\",reason=\"max_retries\"} 4",
        "redrive_dead_letters{pipeline=\"orders\",state=\"open\"} 4",
        "redrive_pending{pipeline=\"orders\",state=\"ready\"} 0",
        "redrive_retry_lateness_seconds_count{pipeline=\"orders\"} 8",
        "redrive_end_to_end_seconds_count{pipeline=\"orders\"} 50",
        "redrive_paused{pipeline=\"invoices\"} 0",
    ] {
        assert!(answer.text.lines().any(|found| found == line), "{line} is not in\n{}", answer.text);
    }
    promtool(&answer.text);
    server.stop().await;
}

/// Runs Prometheus' own linter, if it is installed.
fn promtool(text: &str) {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = tool else {
        eprintln!("promtool is not installed; only our own linter was asked");
        return;
    };
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = tool.wait_with_output().unwrap();
    assert!(
        said.status.success(),
        "{}{}",
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_the_life_of_the_process() {
    let server = start().await;
    assert_eq!(server.get("/readyz").await.expect(200), json!({ "status": "ready" }));
    server.readiness.stopping();
    assert_eq!(server.get("/readyz").await.expect(503), json!({ "status": "stopping" }));
    assert_eq!(server.get("/livez").await.expect(200), json!({ "status": "live" }));
    assert_eq!(server.get("/healthz").await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_runs_is_answered_although_the_server_stops() {
    let server = start().await;
    let body = r#"{"id":"late","payload":1}"#;
    let head = format!(
        "POST /v1/pipelines/orders/messages HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OPS}\r\n\
         content-length: {}\r\n",
        body.len()
    );
    let mut slow = server.begin(&head).await;
    // An idle connection must not delay shutdown.
    let idle = server.hang(b"").await;
    let address = server.address;
    let stopping = tokio::spawn(server.stop());
    // Closing the port is the first step of stopping.
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = support::finish(&mut slow, body.as_bytes()).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    drop(idle);
    stopping.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_brings_everything_along_and_allows_nothing_else() {
    let server = start().await;
    let page = server.get("/?token=whatever").await;
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert_eq!(page.text.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert!(!page.text.contains("{{") && !page.text.contains("whatever"));
    let again = server.get("/").await;
    assert!(!again.text.contains(nonce), "a nonce is used once");
    for answer in [page, again] {
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openapi_document_is_served_as_it_is_committed() {
    let server = start().await;
    assert_eq!(server.get("/v1/openapi.json").await.expect(200), openapi::document());
    server.stop().await;
    let text = serde_json::to_string_pretty(&openapi::document()).unwrap() + "\n";
    is_current("docs/reference/openapi.json", &text);
}

#[test]
fn the_table_of_metrics_is_that_of_the_code() {
    is_current("docs/reference/metrics.md", &metrics::docs());
}

/// Compares a committed document with the generated one; REDRIVE_REGENERATE=1 writes it instead.
fn is_current(path: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("REDRIVE_REGENERATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == now,
        "{} is out of date: run REDRIVE_REGENERATE=1 cargo test -p redrive-server --test service",
        path.display()
    );
}
