//! Measures pushes per second of the push sinks and of a bare client, alternating within one run:
//! `bench_push [--seconds 5] [--rounds 3] [--concurrency 256] [--only apns|stale|goaway|webpush]`.
//!
//! Client and server share the processors, for both sides alike. `stale`: one token in five is dead. `goaway`: the
//! server sends GOAWAY every five seconds.

#[path = "../tests/push/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod server;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use redrive::{Call, Message, Sink};
use redrive_sinks::webpush::encrypt::{self, Receiver};
use redrive_sinks::{ApnsAuth, ApnsOptions, ApnsSink, WebPushOptions, WebPushSink};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use server::{PushServer, Reply, key_file};
use tokio::net::{TcpListener, TcpStream};

type Error = Box<dyn std::error::Error + Send + Sync>;
/// A push in progress; returns whether it arrived.
type Pushing = std::pin::Pin<Box<dyn Future<Output = bool> + Send>>;
type Client1 = Arc<dyn Fn(u64) -> Pushing + Send + Sync>;

const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
const CONNECTIONS: usize = 2;
const STREAMS: u32 = 1_000;
const GOAWAY_EVERY: Duration = Duration::from_secs(5);
const STALE_ONE_IN: u64 = 5;
const BODY: &str = r#"{"aps":{"alert":{"title":"Your order is on its way","body":"It arrives tomorrow."}}}"#;

struct Options {
    seconds: u64,
    rounds: usize,
    concurrency: usize,
    only: Option<String>,
}

fn main() -> Result<(), Error> {
    let options = parse(std::env::args().skip(1))?;
    tokio::runtime::Runtime::new()?.block_on(run(&options))
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, Error> {
    let mut options = Options { seconds: 5, rounds: 3, concurrency: 256, only: None };
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--seconds" => options.seconds = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--concurrency" => options.concurrency = value()?.parse()?,
            "--only" => options.only = Some(value()?),
            other => return Err(format!("no flag `{other}`").into()),
        }
    }
    Ok(options)
}

async fn run(options: &Options) -> Result<(), Error> {
    for name in ["apns", "stale", "goaway", "webpush"] {
        if options.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let (bare, ours) = match name {
            "webpush" => webpush().await?,
            _ => apns(name).await?,
        };
        let mut figures = [Figures::default(), Figures::default()];
        for _ in 0..options.rounds {
            for (client, figures) in [&bare, &ours].into_iter().zip(&mut figures) {
                figures.add(measure(client, options).await?);
            }
        }
        let [bare, ours] = figures;
        println!("{name:<8} bare {bare}   redrive {ours}   {:.0} %", 100.0 * ours.rate() / bare.rate());
    }
    Ok(())
}

/// The results of the rounds of one client.
#[derive(Default)]
struct Figures {
    pushes: u64,
    arrived: u64,
    seconds: f64,
    micros: Vec<u32>,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.pushes += other.pushes;
        self.arrived += other.arrived;
        self.seconds += other.seconds;
        self.micros.extend(other.micros);
    }

    fn rate(&self) -> f64 {
        self.pushes as f64 / self.seconds
    }

    fn p99_ms(&self) -> f64 {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * 99 / 100).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100.0 * self.arrived as f64 / self.pushes.max(1) as f64;
        write!(f, "{:>8.0}/s p99 {:>6.1} ms, {share:.0} % arrived", self.rate(), self.p99_ms())
    }
}

/// Makes pushes with the given concurrency for the given time.
async fn measure(client: &Client1, options: &Options) -> Result<Figures, Error> {
    let (next, started) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let until = started + Duration::from_secs(options.seconds);
    let workers = (0..options.concurrency).map(|_| {
        let (client, next) = (Arc::clone(client), Arc::clone(&next));
        tokio::spawn(async move {
            let mut figures = Figures::default();
            while Instant::now() < until {
                let begun = Instant::now();
                figures.arrived += u64::from(client(next.fetch_add(1, Ordering::Relaxed)).await);
                figures.pushes += 1;
                figures.micros.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            figures
        })
    });
    let mut all = Figures::default();
    for worker in workers.collect::<Vec<_>>() {
        all.add(worker.await?);
    }
    all.seconds = started.elapsed().as_secs_f64();
    Ok(all)
}

/// A separate device token for each push; some are dead, if that is measured.
fn token(number: u64, is_stale: bool) -> String {
    let kind = if is_stale && number.is_multiple_of(STALE_ONE_IN) { "dead" } else { "00ab" };
    format!("{kind}{number:012x}")
}

async fn apns(name: &str) -> Result<(Client1, Client1), Error> {
    let gone = r#"{"reason":"Unregistered","timestamp":1700000000000}"#;
    let server = PushServer::with_streams(STREAMS, move |seen| {
        if seen.path.starts_with("/3/device/dead") { Reply::of(410, gone) } else { Reply::of(200, "") }
    });
    let server = Arc::new(server.await);
    if name == "goaway" {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(GOAWAY_EVERY).await;
                server.go_away();
            }
        });
    }
    let is_stale = name == "stale";
    let bare = Arc::new(BareApns::connect(&server).await?);
    let keep = Arc::clone(&server);
    let bare: Client1 = Arc::new(move |number| {
        let (bare, _keep) = (Arc::clone(&bare), Arc::clone(&keep));
        Box::pin(async move { bare.push(&token(number, is_stale)).await.unwrap_or(false) })
    });
    let mut options = ApnsOptions::new(ApnsAuth::Token {
        key_file: key_file(&server.authority.dir, "key.p8"),
        key_id: "ABC123DEFG".into(),
        team_id: "DEF123GHIJ".into(),
    });
    options.url = server.url();
    options.topic = Some("com.example.app".into());
    options.ca_file = Some(server.authority.ca_file());
    options.connections = CONNECTIONS as u32;
    let sink = ApnsSink::build(options).map_err(|fault| fault.to_string())?;
    let ours = through(Arc::new(sink), move |number| {
        format!(r#"{{"token":"{}","payload":{BODY}}}"#, token(number, is_stale))
    });
    Ok((bare, ours))
}

fn through(sink: Arc<dyn Sink>, payload: impl Fn(u64) -> String + Send + Sync + 'static) -> Client1 {
    let pipeline: Arc<str> = "push".into();
    Arc::new(move |number| {
        let (sink, pipeline) = (Arc::clone(&sink), Arc::clone(&pipeline));
        let message = Message::builder(format!("m-{number}")).payload(payload(number)).build();
        Box::pin(async move {
            let Ok(message) = message else { return false };
            sink.deliver(Call { message, attempt: 1, replays: 0, pipeline, origin: None }).await.is_ok()
        })
    })
}

/// As long as a provider token.
const BEARER: &str = "bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQzEyM0RFRkcifQ.eyJpc3MiOiJERUYxMjNHSElKIiwiaWF0IjoxNzk0OTM3NjAwfQ.MEUCIQDyzZ0kq8gX1vT5oS6mYb2uC3nE4fR7hW9jKlLpQaBdVwIgNxUeTsO1r2i3g4h5j6k7l8m9n0p1q2r3s4t5u6v7w8";

/// The minimum that a client does: a request, an answer.
struct BareApns {
    server: Arc<PushServer>,
    sessions: Vec<tokio::sync::Mutex<SendRequest<Bytes>>>,
    next: AtomicU64,
}

impl BareApns {
    async fn connect(server: &Arc<PushServer>) -> Result<Self, Error> {
        let mut sessions = Vec::new();
        for _ in 0..CONNECTIONS {
            sessions.push(tokio::sync::Mutex::new(session(server).await?));
        }
        Ok(Self { server: Arc::clone(server), sessions, next: AtomicU64::new(0) })
    }

    async fn push(&self, token: &str) -> Result<bool, Error> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % self.sessions.len();
        let current = self.sessions[at].lock().await.clone();
        let Ok(mut session) = current.ready().await else {
            // The server sent GOAWAY. The first call reconnects.
            let mut held = self.sessions[at].lock().await;
            if held.clone().ready().await.is_err() {
                *held = session(&self.server).await?;
            }
            return Ok(false);
        };
        let uri = format!("{}/3/device/{token}", self.server.url());
        // The same headers as ours, built with minimal effort.
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header("apns-id", format!("00000000-0000-8000-8000-{:0>12}", &token[4..]))
            .header("apns-push-type", "alert")
            .header("apns-topic", "com.example.app")
            .header("authorization", BEARER)
            .body(())?;
        let (answer, mut body) = session.send_request(request, false)?;
        body.send_data(Bytes::from_static(BODY.as_bytes()), true)?;
        let answer = answer.await?;
        let status = answer.status();
        let mut said = answer.into_body();
        while let Some(chunk) = said.data().await {
            let chunk = chunk?;
            let _ = said.flow_control().release_capacity(chunk.len());
        }
        Ok(status.is_success())
    }
}

async fn session(server: &PushServer) -> Result<SendRequest<Bytes>, Error> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls::pki_types::CertificateDer::pem_file_iter(server.authority.ca_file())? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", server.port)).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost")?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (session, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(async move {
        // The connection ends with the server.
        let _ = connection.await;
    });
    Ok(session)
}

/// Answers 201 to everything, on connections that stay open.
async fn plain_server() -> Result<u16, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let answer = service_fn(|request: Request<Incoming>| async {
                    // The body has to be read before the next request.
                    let _ = request.into_body().collect().await;
                    let mut response = Response::new(Empty::<Bytes>::new());
                    *response.status_mut() = StatusCode::CREATED;
                    Ok::<_, Infallible>(response)
                });
                // The server ignores clients that disconnect.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    Ok(port)
}

async fn webpush() -> Result<(Client1, Client1), Error> {
    let port = plain_server().await?;
    let bare = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let bare: Client1 = Arc::new(move |number| {
        let bare = bare.clone();
        Box::pin(async move {
            let decode = |text: &str| redrive_sinks::push::keys::decode(text).unwrap_or_default();
            let (public, auth) = (decode(P256DH), decode(AUTH));
            let receiver = Receiver { public: &public, auth: &auth };
            let Ok(body) = encrypt::encrypt(BODY.as_bytes(), receiver) else { return false };
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("http://127.0.0.1:{port}/wp/{number}"))
                .header("ttl", "60")
                .header("content-encoding", "aes128gcm")
                .body(Full::new(Bytes::from(body)));
            let Ok(request) = request else { return false };
            bare.request(request).await.is_ok_and(|answer| answer.status().is_success())
        })
    });
    let dir = tempfile::tempdir()?;
    let mut options = WebPushOptions::new(key_file(&dir, "vapid.pem"), "mailto:ops@example.com");
    options.allow_private_addresses = true;
    let sink = WebPushSink::build(options).map_err(|fault| fault.to_string())?;
    let ours = through(Arc::new(sink), move |number| {
        let keys = json!({"p256dh": P256DH, "auth": AUTH});
        let endpoint = format!("http://127.0.0.1:{port}/wp/{number}");
        json!({"subscription": {"endpoint": endpoint, "keys": keys}, "payload": BODY}).to_string()
    });
    Ok((bare, ours))
}
