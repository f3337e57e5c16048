//! Measures how fast messages are accepted and delivered over HTTP, compared with a bare client and server.
//!
//! `cargo run --release -p redrive-cli --example http_rate -- [messages] [rounds]`
//!
//! Everything shares the machine. Each round measures all rows in turn, so that changes in machine load affect all of
//! them. Every accepted message is synced before its 202; the bare server stores nothing.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use redrive::actions::Actions;
use redrive::replay::Replays;
use redrive::{Embedded, Pipeline, Policy, Redrive};
use redrive_server::{Scope, Served, Server, ServerOptions, Service, Token};
use redrive_sinks::{WebhookOptions, WebhookSink};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const CONNECTIONS: u64 = 64;
const BYTES: usize = 512;
const LINES: u64 = 100;
const SECRET: &str = "a-secret-for-the-benchmark";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Pool = Client<HttpConnector, Full<Bytes>>;

/// A server that reads each request to its end, counts it and answers 200.
async fn bare_server(seen: Arc<AtomicU64>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let seen = Arc::clone(&seen);
            let service = service_fn(move |request: Request<Incoming>| {
                let seen = Arc::clone(&seen);
                async move {
                    let _ = request.into_body().collect().await;
                    seen.fetch_add(1, Ordering::Relaxed);
                    Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

fn message(number: u64) -> String {
    let head = format!(r#"{{"id":"o-{number}","payload":{{"order_id":"o-{number}","payload":""#);
    format!("{head}{}\"}}}}", "x".repeat(BYTES.saturating_sub(head.len() + 3)))
}

/// Sends messages `lines` at a time over all connections; returns the time until the last answer.
async fn send(uri: &Uri, messages: u64, lines: u64) -> Result<Duration> {
    let client: Pool = Client::builder(TokioExecutor::new()).build_http();
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (client, next, uri) = (client.clone(), Arc::clone(&next), uri.clone());
        tasks.spawn(async move {
            loop {
                let first = next.fetch_add(lines, Ordering::Relaxed);
                if first >= messages {
                    return Result::Ok(());
                }
                let body: Vec<String> = (first..messages.min(first + lines)).map(message).collect();
                let kind = if lines == 1 { "application/json" } else { "application/x-ndjson" };
                let request = Request::builder()
                    .method(Method::POST)
                    .uri(&uri)
                    .header("authorization", format!("Bearer {SECRET}"))
                    .header("content-type", kind)
                    .body(Full::from(body.join("\n")))?;
                let answer = client.request(request).await?;
                let status = answer.status();
                answer.into_body().collect().await?;
                if !status.is_success() {
                    return Err(format!("{uri} answered {status}").into());
                }
            }
        });
    }
    for task in tasks.join_all().await {
        task?;
    }
    Ok(began.elapsed())
}

/// A processor in this process: the API, one pipeline on the embedded engine, a webhook to `sink`.
struct Processor {
    ingest: Uri,
    handle: redrive::PipelineHandle,
    stop_server: oneshot::Sender<()>,
    stop_pipeline: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
    ran: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Processor {
    fn start(sink: SocketAddr) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let sink = WebhookSink::build(WebhookOptions::to_url(format!("http://{sink}/")))?;
        let pipeline = Pipeline::new("orders")
            .policy(Policy::tiers(["1s", "2s", "4s"]))
            .concurrency(64)
            .dedup(Duration::from_hours(24))
            .sink(sink);
        let redrive = Redrive::builder().engine(Embedded::open(dir.path())?).pipeline(pipeline).build()?;
        let handle = redrive.pipeline("orders").ok_or("no such pipeline")?;
        let service = Service {
            pipelines: vec![Served::new(handle.clone())],
            replays: Replays::open(None)?,
            actions: Actions::open(None)?,
        };
        let options = ServerOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tokens: vec![Token::new("bench", SECRET, Scope::ALL)?],
            ..ServerOptions::default()
        };
        let server = Server::bind(options, service)?;
        let ingest = format!("http://{}/v1/pipelines/orders/messages", server.address()).parse()?;
        let (stop_server, server_stops) = oneshot::channel::<()>();
        let (stop_pipeline, pipeline_stops) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let _ = server.run(server_stops).await;
        });
        let ran = tokio::spawn(async move {
            let _ = redrive.run_until(pipeline_stops).await;
        });
        Ok(Self { ingest, handle, stop_server, stop_pipeline, served, ran, _dir: dir })
    }

    async fn stop(self) -> Result<()> {
        let _ = (self.stop_server.send(()), self.stop_pipeline.send(()));
        self.served.await?;
        self.ran.await?;
        Ok(())
    }
}

/// Measures ingest alone: the pipeline is paused.
async fn ingest(sink: SocketAddr, messages: u64, lines: u64) -> Result<f64> {
    let processor = Processor::start(sink)?;
    processor.handle.pause().await?;
    let took = send(&processor.ingest, messages, lines).await?;
    processor.stop().await?;
    Ok(messages as f64 / took.as_secs_f64())
}

/// Measures ingest and delivery together, until every message is finished.
async fn through(sink: SocketAddr, messages: u64) -> Result<f64> {
    let processor = Processor::start(sink)?;
    let began = Instant::now();
    send(&processor.ingest, messages, LINES).await?;
    while processor.handle.figures().succeeded < messages {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = began.elapsed();
    processor.stop().await?;
    Ok(messages as f64 / took.as_secs_f64())
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let messages: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let cores = std::thread::available_parallelism()?;
    println!("{messages} messages of {BYTES} B, {CONNECTIONS} connections, everything on {cores} cores");
    let bare = bare_server(Arc::default()).await?;
    let bare_uri: Uri = format!("http://{bare}/").parse()?;
    for round in 1..=rounds {
        let raw = messages as f64 / send(&bare_uri, messages, 1).await?.as_secs_f64();
        let single = ingest(bare, messages, 1).await?;
        let many = ingest(bare, messages, LINES).await?;
        let through = through(bare, messages).await?;
        println!(
            "round {round}: bare client and server {raw:.0}/s   one message per request, 202 after the sync {single:.0}/s \
             ({:.0} %)   {LINES} per request {many:.0}/s   in over HTTP and out by webhook {through:.0}/s ({:.0} %)",
            single / raw * 100.0,
            through / raw * 100.0
        );
    }
    Ok(())
}
