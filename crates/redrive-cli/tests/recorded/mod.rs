//! A server with recorded answers in place of a processor, and the binary run against it.
//!
//! The answers have the shape the API promises. They test how the client handles them, not that a processor gives them.
#![allow(
    dead_code,
    clippy::missing_panics_doc,
    reason = "shared by several test binaries; a panic is a failed test"
)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use redrive::Time;
use redrive_cli::output::instant;
use serde_json::{Value, json};

/// A request that the client sent.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET /v1/pipelines?x=y`
    pub line: String,
    pub authorization: Option<String>,
    pub body: Value,
}

type Answers = dyn Fn(&Asked) -> (u16, Value) + Send + Sync;

/// Listens on its own port until the test ends.
pub struct RecordedApi {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl RecordedApi {
    pub fn new(answers: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let answers: Arc<Answers> = Arc::new(answers);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (tell, told) = std::sync::mpsc::channel();
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
                    let service =
                        service_fn(move |request| answer(request, Arc::clone(&answers), Arc::clone(&log)));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    tokio::spawn(connection);
                }
            });
        });
        Self { address: told.recv().unwrap(), asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The body of the last request whose line starts with `line`.
    pub fn body_of(&self, line: &str) -> Value {
        let asked = self.asked();
        let found = asked.iter().rev().find(|asked| asked.line.starts_with(line));
        found.unwrap_or_else(|| panic!("nobody asked {line}: {asked:?}")).body.clone()
    }

    /// Runs the binary against this server, in an empty directory and with a clean environment.
    pub fn redrive(&self, args: &[&str]) -> Ran {
        run(command(&self.url(), args))
    }
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    answers: Arc<Answers>,
    log: Arc<Mutex<Vec<Asked>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    let asked = Asked {
        line: format!("{} {path}", parts.method),
        authorization: authorization.map(str::to_owned),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let (status, json) = answers(&asked);
    log.lock().unwrap().push(asked);
    Ok(Response::builder().status(status).body(Full::from(json.to_string())).unwrap())
}

/// The result of running the binary.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub fn prints(self, stdout: &str) -> Self {
        assert_eq!(self.stdout, stdout, "stderr: {}", self.stderr);
        self
    }

    #[track_caller]
    pub fn complains(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "no `{part}` in {}", self.stderr);
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// The binary as a command, without any environment of this machine that could affect it.
pub fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(args).args(["--url", url]).current_dir(std::env::temp_dir()).stdin(Stdio::null());
    for name in
        ["REDRIVE_CONFIG", "REDRIVE_URL", "REDRIVE_TOKEN", "REDRIVE_DIR", "REDRIVE_LISTEN", "REDRIVE_ENGINE"]
    {
        command.env_remove(name);
    }
    command
}

pub fn run(mut command: Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap();
    Ran {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// The time `seconds` ago, as the API writes it.
pub fn ago(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    instant::print(Time::from_millis(now.saturating_sub(Duration::from_secs(seconds)).as_millis() as u64))
}

/// The answer to requests without a recorded answer.
pub fn not_found(what: &str) -> (u16, Value) {
    (404, json!({"code": "not_found", "message": format!("there is no {what}"), "hint": "look again"}))
}

/// A letter as the API writes it.
pub fn letter(number: u64, message: &str, dead_at: &str) -> Value {
    json!({
        "id": format!("orders/{number}"), "message": message, "key": "c-204", "tenant": null, "state": "open",
        "reason": "max_retries", "class": "transient", "error_class": "transient", "attempts": 4, "replays": 0,
        "error": "503 Service Unavailable", "dead_at": dead_at, "created": dead_at, "first_seen": dead_at,
        "deadline": null, "origin": null,
        "headers": {"x-src": "web", "authorization": "Bearer s3cret"},
        "payload": {"utf8": format!("{{\"order_id\":\"{message}\",\"card\":\"4111111111111111\"}}")},
        "history": [
            {"attempt": 1, "at": "2026-11-15T08:01:12.001Z", "took_ms": 112, "class": "transient", "error": "503 Service Unavailable", "counted": true, "ambiguous": false},
            {"attempt": 2, "at": "2026-11-15T08:01:17.120Z", "took_ms": 10000, "class": "transient", "error": "timeout after 10 s", "counted": true, "ambiguous": true},
        ],
        "something_new": true,
    })
}

/// A pipeline as the API writes it.
pub fn pipeline(paused: bool) -> Value {
    json!({
        "name": "orders", "paused": paused, "mode": "non-blocking", "ordering": "none", "engine": "embedded",
        "sink": "webhook", "policy": {"tiers": ["2s", "5s", "15s"]},
        "pending": {"ready": 0, "delayed": 3, "key_wait": 0, "in_flight": 2, "held": 0},
        "letters": {"open": 61, "replaying": 0, "succeeded": 12, "discarded": 47},
        "oldest_pending": null, "oldest_letter": ago(7_230), "succeeded": 5_934, "dead": 61, "retried": 901,
        "attempts": 6_896, "late_p99_ms": 9e5, "end_to_end_p99_ms": 9e5, "breaker": "closed",
        "recent": {"window_s": 300, "late_p99_ms": 3.2, "end_to_end_p99_ms": 41.0, "held": 12, "held_p99_ms": 3_180_000.0,
            "failed": [{"kind": "reset", "attempts": 1_812}, {"kind": "503", "attempts": 9}], "failed_replayed": 4},
    })
}
