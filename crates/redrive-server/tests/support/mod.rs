//! A server with the embedded engine in a temporary directory, and a simple HTTP client for it.

// Each test file uses a different part of this.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redrive::actions::Actions;
use redrive::replay::Replays;
use redrive::{Embedded, Failure, GuardSettings, Message, Pipeline, Policy, Redrive};
use redrive_server::{Intake, Readiness, Scope, Served, Server, ServerOptions, Service, Token};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const OPS: &str = "ops-secret-0123456789";
pub const READER: &str = "reader-secret-0123456789";

/// The handler's behaviour: messages whose payload contains `poison` are refused for good, `vague` ones fail
/// ambiguously, `flaky` ones fail until it is healed.
#[derive(Debug, Default)]
pub struct Downstream {
    pub healed: AtomicBool,
    pub delivered: AtomicU64,
    /// Calls for a message that crashes its handler; the first one only fails.
    pub crashing: AtomicU64,
}

impl Downstream {
    fn handle(&self, message: &Message) -> Result<(), Failure> {
        let payload = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
        if !self.healed.load(Ordering::SeqCst) {
            if payload.contains("poison") {
                return Err(Failure::permanent("422 no lines"));
            }
            if payload.contains("crash") {
                let earlier = self.crashing.fetch_add(1, Ordering::SeqCst);
                assert_eq!(earlier, 0, "a message that its handler cannot bear");
                return Err(Failure::transient("503 Service Unavailable").note("status_code", "503"));
            }
            if payload.contains("vague") {
                return Err(Failure::permanent("no answer").ambiguous());
            }
            if payload.contains("flaky") {
                return Err(Failure::transient("503 Service Unavailable").note("status_code", "503"));
            }
        }
        self.delivered.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The options of a test's server.
pub struct Setup {
    pub options: ServerOptions,
    pub intake: Intake,
    pub max_pending: u64,
    pub tiers: &'static [&'static str],
    /// Whether the pipelines run; otherwise messages wait for ever.
    pub run: bool,
    /// What the pipelines redact, as in a configuration.
    pub redact: &'static [&'static str],
    /// When a pipeline is paused because most of its messages die.
    pub guard: GuardSettings,
}

impl Default for Setup {
    fn default() -> Self {
        let options = ServerOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tokens: vec![
                Token::new("ops", OPS, Scope::ALL).unwrap(),
                Token::new("reader", READER, [Scope::Read]).unwrap(),
            ],
            ..ServerOptions::default()
        };
        let tiers = &["20ms", "40ms"];
        Self {
            options,
            intake: Intake::default(),
            max_pending: 0,
            tiers,
            run: true,
            redact: &[],
            guard: GuardSettings::default(),
        }
    }
}

/// A running server; stopped on drop, and cleanly with [`Self::stop`].
pub struct Running {
    pub address: SocketAddr,
    pub downstream: Arc<Downstream>,
    pub readiness: Readiness,
    pub redrive: Redrive,
    pub dir: TempDir,
    stop_server: Option<oneshot::Sender<()>>,
    stop_pipelines: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    pipelines: JoinHandle<()>,
}

/// Longer than anything takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(5);

pub async fn start() -> Running {
    start_with(Setup::default()).await
}

/// Asynchronous because starting needs a runtime.
#[allow(clippy::unused_async)]
pub async fn start_with(setup: Setup) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let downstream = Arc::new(Downstream::default());
    let pipeline = |name: &str| {
        let downstream = Arc::clone(&downstream);
        Pipeline::new(name)
            .policy(Policy::tiers(setup.tiers.iter().copied()).jitter("none"))
            .dedup(Duration::from_hours(24))
            .max_pending(setup.max_pending)
            .guard(setup.guard.clone())
            .handler_fn(move |message| {
                let downstream = Arc::clone(&downstream);
                async move { downstream.handle(&message) }
            })
    };
    let redrive = Redrive::builder()
        .engine(Embedded::open(dir.path().join("data")).unwrap())
        .pipeline(pipeline("orders"))
        .pipeline(pipeline("invoices"))
        .drain(Duration::from_secs(5))
        .build()
        .unwrap();
    let mut service = service(&redrive, &dir);
    for served in &mut service.pipelines {
        served.intake = setup.intake.clone();
        assert!(setup.redact.iter().all(|rule| served.redaction.add(rule)));
    }
    let server = Server::bind(setup.options, service).unwrap();
    let (address, readiness) = (server.address(), server.readiness());
    let (stop_server, server_stopped) = oneshot::channel();
    let (stop_pipelines, pipelines_stopped) = oneshot::channel();
    let server = tokio::spawn(async move {
        server.run(server_stopped).await.unwrap();
    });
    let running = redrive.clone();
    let pipelines = tokio::spawn(async move {
        if setup.run {
            running.run_until(pipelines_stopped).await.unwrap();
        }
    });
    readiness.ready();
    let stop_server = Some(stop_server);
    let stop_pipelines = Some(stop_pipelines);
    Running { address, downstream, readiness, redrive, dir, stop_server, stop_pipelines, server, pipelines }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }
}

/// A request as written to the connection.
pub struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub host: &'a str,
    pub token: Option<&'a str>,
    pub content_type: &'a str,
    pub body: &'a [u8],
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self {
            method: "GET",
            path: "/",
            host: "127.0.0.1:7333",
            token: None,
            content_type: "application/x-www-form-urlencoded",
            body: b"",
        }
    }
}

impl Running {
    pub async fn send(&self, request: Request<'_>) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let Request { method, path, host, token, content_type, body } = request;
        let authorization =
            token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
             content-length: {}\r\n{authorization}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server may refuse a body before all of it is sent.
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        read_answer(&mut stream, &mut answer).await;
        parse(&answer)
    }

    /// Like [`Self::send`], but fails if the whole request cannot be sent.
    pub async fn send_all(&self, request: Request<'_>) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let Request { method, path, host, token, body, .. } = request;
        let authorization =
            token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n{authorization}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.expect("the whole body is taken");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("and answered");
        parse(&answer)
    }

    /// A GET with the scope `read`.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request { path, token: Some(READER), ..Request::default() }).await
    }

    /// A POST with all scopes.
    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(Request {
            method: "POST",
            path,
            token: Some(OPS),
            body: body.as_bytes(),
            ..Request::default()
        })
        .await
    }

    pub async fn post_lines(&self, path: &str, body: &str) -> Answer {
        let content_type = "application/x-ndjson";
        let request = Request {
            method: "POST",
            path,
            token: Some(OPS),
            body: body.as_bytes(),
            content_type,
            ..Request::default()
        };
        self.send(request).await
    }

    /// Waits until the JSON at `path` meets the condition.
    pub async fn wait_for(&self, path: &str, wish: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let answer = self.get(path).await;
            let value = answer.json();
            if answer.status == 200 && wish(&value) {
                return value;
            }
            assert!(begun.elapsed() < PATIENCE, "{path} stays {value}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends raw bytes and reads the answer.
    pub async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.hang(bytes).await;
        finish(&mut stream, b"").await
    }

    /// Sends the beginning of a request and nothing more.
    pub async fn hang(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// Sends the head of a request, without the empty line after it, and returns once the server asks for its body:
    /// then the request is being processed.
    pub async fn begin(&self, head: &str) -> TcpStream {
        let mut stream = self.hang(format!("{head}expect: 100-continue\r\n\r\n").as_bytes()).await;
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            let read = stream.read(&mut byte).await.unwrap();
            assert_eq!(read, 1, "the server hung up: {:?}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        assert!(said.starts_with(b"HTTP/1.1 100 "), "{:?}", String::from_utf8_lossy(&said));
        stream
    }

    /// Sends a message until it is accepted.
    pub async fn wait_until_accepted(&self, path: &str, body: &str) {
        let begun = Instant::now();
        while self.post(path, body).await.status != 202 {
            assert!(begun.elapsed() < PATIENCE, "{path} accepts nothing");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A copy of the directory as it is now, while the server runs.
    pub fn copy(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_all(self.dir.path(), copy.path());
        copy
    }

    pub fn delivered(&self) -> u64 {
        self.downstream.delivered.load(Ordering::SeqCst)
    }

    pub async fn stop(mut self) -> TempDir {
        let _ = self.stop_server.take().map(|stop| stop.send(()));
        (&mut self.server).await.unwrap();
        let _ = self.stop_pipelines.take().map(|stop| stop.send(()));
        (&mut self.pipelines).await.unwrap();
        self.dir
    }
}

/// Sends the rest of a request and reads the answer to its end.
pub async fn finish(stream: &mut TcpStream, rest: &[u8]) -> Answer {
    let _ = stream.write_all(rest).await;
    let mut answer = Vec::new();
    read_answer(stream, &mut answer).await;
    parse(&answer)
}

/// Reads an answer to its end; of an endless stream of events, its beginning.
async fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) {
    let is_stream = |answer: &[u8]| {
        let head = String::from_utf8_lossy(answer);
        head.contains("\r\n\r\n") && head.contains("content-type: text/event-stream")
    };
    while let Ok(count) = stream.read_buf(answer).await {
        if count == 0 || is_stream(&answer[..answer.len().min(1024)]) {
            break;
        }
    }
}

fn parse(answer: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap();
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    Answer { status, headers, text: body.to_owned() }
}

pub fn service(redrive: &Redrive, dir: &TempDir) -> Service {
    Service {
        pipelines: redrive.pipelines().map(Served::new).collect(),
        replays: Replays::open(Some(dir.path())).unwrap(),
        actions: Actions::open(Some(dir.path())).unwrap(),
    }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}
